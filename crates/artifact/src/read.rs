//! From the bytes of a file to a window: nothing is believed before it was checked.

use std::borrow::Cow;
use std::io::{Read, Seek};
use std::path::Path;

use deepxtrace_counters::{
    CompletionProbe, Counter, LlPhase, LlWindow, NotifyProbe, Topology, Window,
};
use deepxtrace_normal::WindowDiagnosis;
use deepxtrace_npz::{Archive, Array};
use ndarray::Array2;
use serde::de::DeserializeOwned;

use crate::SCHEMA_VERSION;
use crate::error::{ArtifactError, Reason};
use crate::model::{Artifact, LlArtifact, NormalArtifact};
use crate::name::{InvalidInstance, Kind};
use crate::write::{average_key, averages, cost_key, costs, key};

/// Reads a file.
///
/// # Errors
///
/// - it cannot be read, or is no whole NPZ archive
/// - it is an archive of something else, of a newer schema, or of an unknown kind
/// - an array is missing, or has another type or shape than the schema says
/// - its bytes are damaged, or what it says contradicts itself
pub fn read(path: impl AsRef<Path>) -> Result<Artifact<'static>, ArtifactError> {
    let path = path.as_ref();
    let failed = |reason| ArtifactError::new(path.display(), reason);
    let mut archive = Archive::open(path).map_err(|error| failed(error.into()))?;
    read_archive(&mut archive).map_err(failed)
}

/// Reads an artifact from `reader`, which errors call `name`.
///
/// # Errors
///
/// See [`read`].
pub fn read_from(reader: impl Read + Seek, name: &str) -> Result<Artifact<'static>, ArtifactError> {
    let failed = |reason| ArtifactError::new(name, reason);
    let mut archive = Archive::new(reader, name).map_err(|error| failed(error.into()))?;
    read_archive(&mut archive).map_err(failed)
}

fn read_archive<R: Read + Seek>(archive: &mut Archive<R>) -> Result<Artifact<'static>, Reason> {
    let mut npz = Npz { archive };
    let head = npz.head()?;
    match head.kind {
        Kind::Normal => npz.normal(head).map(Artifact::Normal),
        Kind::LowLatency => npz.low_latency(head).map(Artifact::LowLatency),
    }
}

/// What both kinds have.
struct Head {
    kind: Kind,
    instance: String,
    topology: Topology,
    index: u64,
    time: (i64, i64),
    valid: Vec<bool>,
    policy: deepxtrace_normal::Policy,
}

struct Npz<'a, R> {
    archive: &'a mut Archive<R>,
}

fn inconsistent(key: impl Into<String>, what: impl Into<String>) -> Reason {
    Reason::Inconsistent { key: key.into(), what: what.into() }
}

impl<R: Read + Seek> Npz<'_, R> {
    fn head(&mut self) -> Result<Head, Reason> {
        let kind = self.check_schema()?;
        let instance = self.text("instance_id", LONGEST_NAME)?;
        InvalidInstance::check(&instance)?;
        let topology = self.topology()?;
        let index = self.integer("window_index")?;
        let index = u64::try_from(index)
            .map_err(|_| inconsistent("window_index", format!("{index} is below 0")))?;
        let time = (self.integer("begin_unix_ns")?, self.integer("end_unix_ns")?);
        let valid = self.array("valid", &["|b1"], &[topology.ep_size()])?.into_bool()?;
        let policy: deepxtrace_normal::Policy = self.json("policy_json")?;
        policy.validate().map_err(|error| inconsistent("policy_json", error.to_string()))?;
        Ok(Head { kind, instance, topology, index, time, valid, policy })
    }

    fn check_schema(&mut self) -> Result<Kind, Reason> {
        for key in ["schema_version", "kind"] {
            if !self.archive.contains(key) {
                let mut names: Vec<_> = self.archive.names().take(8).collect();
                names.sort();
                let names =
                    if names.is_empty() { "no arrays".to_owned() } else { names.join(", ") };
                return Err(Reason::Foreign(format!("no {key}; the archive has {names}")));
            }
        }
        let found = self.integer("schema_version")?;
        if found > SCHEMA_VERSION {
            return Err(Reason::NewerSchema { found });
        }
        if found < 1 {
            return Err(inconsistent("schema_version", format!("{found} is below 1")));
        }
        let kind = self.text("kind", LONGEST_NAME)?;
        Kind::ALL
            .into_iter()
            .find(|known| known.name() == kind)
            .ok_or_else(|| Reason::UnknownKind(kind.chars().take(80).collect()))
    }

    fn topology(&mut self) -> Result<Topology, Reason> {
        let (ep_size, ranks_per_node) = (self.integer("ep_size")?, self.integer("ranks_per_node")?);
        let group = |source| Reason::Group { ep_size, ranks_per_node, source };
        let (Ok(n), Ok(node)) = (usize::try_from(ep_size), usize::try_from(ranks_per_node)) else {
            return Err(group(None));
        };
        Topology::new(n, node).map_err(|error| group(Some(error)))
    }

    fn normal(&mut self, head: Head) -> Result<NormalArtifact<'static>, Reason> {
        let diagnosis: WindowDiagnosis = self.json("diagnosis_json")?;
        if diagnosis.window_index != head.index {
            let what =
                format!("is of window {}, the file of {}", diagnosis.window_index, head.index);
            return Err(inconsistent("diagnosis_json", what));
        }
        self.check_sizes(head.topology.ep_size())?;
        let mut window = Window::empty(head.topology);
        window.set_place(head.index, head.time.0, head.time.1);
        window.valid_mut().copy_from_slice(&head.valid);
        for probe in NotifyProbe::ALL {
            let duration_ns = self.vector(&key(probe, Counter::DurationNs), &head)?;
            let count = self.vector(&key(probe, Counter::Count), &head)?;
            window.edit_notify(probe, |delta| {
                (delta.duration_ns, delta.count) = (duration_ns, count);
            });
            self.check_derived(
                &average_key(probe),
                averages(window.notify(probe)),
                &[head.valid.len()],
            )?;
        }
        for probe in CompletionProbe::ALL {
            let cost = self.matrix(&key(probe, Counter::Cost), &head, Axis::Column)?;
            let samples = self.matrix(&key(probe, Counter::SampleCount), &head, Axis::Column)?;
            let tokens = self.matrix(&key(probe, Counter::TokenCount), &head, Axis::Column)?;
            window.edit_completion(probe, |delta| {
                (delta.cost, delta.samples, delta.tokens) = (cost, samples, tokens);
            });
            let n = head.valid.len();
            self.check_derived(&cost_key(probe), costs(window.completion(probe)), &[n, n])?;
        }
        Ok(NormalArtifact {
            instance: Cow::Owned(head.instance),
            policy: head.policy,
            window: Cow::Owned(window),
            diagnosis: Cow::Owned(diagnosis),
        })
    }

    fn low_latency(&mut self, head: Head) -> Result<LlArtifact<'static>, Reason> {
        let n = head.topology.ep_size();
        let mean_policy: deepxtrace_ll::MeanRatioPolicy = self.json("mean_policy_json")?;
        mean_policy
            .validate()
            .map_err(|error| inconsistent("mean_policy_json", error.to_string()))?;
        let mut diagnosis = |phase: LlPhase| {
            let key = format!("{phase}_diagnosis_json");
            let diagnosis: Option<deepxtrace_ll::LlDiagnosis> = self.json(&key)?;
            match diagnosis {
                Some(diagnosis) if diagnosis.shape != [n, n] => {
                    let what =
                        format!("is of shape {:?}, the group has {n} ranks", diagnosis.shape);
                    Err(inconsistent(key, what))
                }
                diagnosis => Ok(diagnosis.map(Cow::Owned)),
            }
        };
        let diagnoses = [diagnosis(LlPhase::Dispatch)?, diagnosis(LlPhase::Combine)?];
        let wait = [
            self.matrix("dispatch_wait", &head, Axis::Row)?,
            self.matrix("combine_wait", &head, Axis::Row)?,
        ];
        let mut window = LlWindow::empty(head.topology);
        window
            .set(head.index, head.time, head.valid, wait)
            .map_err(|error| inconsistent("dispatch_wait", error.to_string()))?;
        Ok(LlArtifact {
            instance: Cow::Owned(head.instance),
            policy: head.policy,
            mean_policy,
            window: Cow::Owned(window),
            diagnoses,
        })
    }

    /// Checks the shapes of all matrices before the first of them, or the window, is allocated.
    fn check_sizes(&mut self, n: usize) -> Result<(), Reason> {
        for probe in CompletionProbe::ALL {
            for counter in [Counter::Cost, Counter::SampleCount, Counter::TokenCount] {
                self.array(&key(probe, counter), INTEGER, &[n, n])?;
            }
            self.array(&cost_key(probe), FLOAT, &[n, n])?;
        }
        Ok(())
    }

    fn array(&mut self, key: &str, types: &[&str], shape: &[usize]) -> Result<Array<'_>, Reason> {
        let array = self.archive.array(key)?.expect_shape(shape)?;
        if types.contains(&array.dtype()) {
            return Ok(array);
        }
        Err(array.mismatch(format!("dtype {}", types.join(" or "))).into())
    }

    fn integer(&mut self, key: &str) -> Result<i64, Reason> {
        Ok(self.array(key, INTEGER, &[])?.into_scalar_i64()?)
    }

    /// A text of at most `longest` code points.
    fn text(&mut self, key: &str, longest: usize) -> Result<String, Reason> {
        let array = self.archive.array(key)?.expect_shape(&[])?;
        let length = array.dtype().get(2..).and_then(|length| length.parse::<usize>().ok());
        if length.is_some_and(|length| length > longest) && array.dtype().get(1..2) == Some("U") {
            return Err(array.mismatch(format!("a text of at most {longest} characters")).into());
        }
        Ok(array.into_scalar_string()?)
    }

    fn json<T: DeserializeOwned>(&mut self, key: &str) -> Result<T, Reason> {
        let text = self.text(key, LONGEST_JSON)?;
        serde_json::from_str(&text).map_err(|error| inconsistent(key, error.to_string()))
    }

    fn vector(&mut self, key: &str, head: &Head) -> Result<Vec<i64>, Reason> {
        let values = self.array(key, INTEGER, &[head.valid.len()])?.into_i64()?;
        for (rank, &value) in values.iter().enumerate() {
            check_counter(key, || format!("[{rank}]"), value, rank, &head.valid)?;
        }
        Ok(values)
    }

    /// A matrix of counters; `owner` is the axis of the rank whose vector they were in.
    fn matrix(&mut self, key: &str, head: &Head, owner: Axis) -> Result<Array2<i64>, Reason> {
        let n = head.valid.len();
        let values = self.array(key, INTEGER, &[n, n])?.into_i64()?;
        let matrix = Array2::from_shape_vec((n, n), values)
            .map_err(|error| inconsistent(key, error.to_string()))?;
        for ((row, column), &value) in matrix.indexed_iter() {
            let rank = if owner == Axis::Row { row } else { column };
            check_counter(key, || format!("[{row}, {column}]"), value, rank, &head.valid)?;
        }
        Ok(matrix)
    }

    /// Compares the derived array `key` with what the counters give.
    fn check_derived(
        &mut self,
        key: &str,
        expected: impl Iterator<Item = f64>,
        shape: &[usize],
    ) -> Result<(), Reason> {
        let found = self.array(key, FLOAT, shape)?.into_f64()?;
        for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
            if *found != expected && !(found.is_nan() && expected.is_nan()) {
                let what = format!("element {i} is {found}, the counters give {expected}");
                return Err(inconsistent(key, what));
            }
        }
        Ok(())
    }
}

/// Longest kind or instance, code points.
const LONGEST_NAME: usize = 1024;
/// Longest JSON text, code points: 256 MiB in the file.
const LONGEST_JSON: usize = 64 << 20;
const INTEGER: &[&str] = &["<i8", ">i8"];
const FLOAT: &[&str] = &["<f8", ">f8"];

/// The axis of the rank whose vector the counters were in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Axis {
    Row,
    Column,
}

/// A difference is never negative, and 0 where the rank that counted it is missing.
fn check_counter(
    key: &str,
    place: impl Fn() -> String,
    value: i64,
    rank: usize,
    valid: &[bool],
) -> Result<(), Reason> {
    if value < 0 {
        return Err(inconsistent(key, format!("{} is {value}, below 0", place())));
    }
    if value > 0 && !valid.get(rank).copied().unwrap_or(false) {
        let what = format!("{} is {value}, but valid says that rank {rank} is missing", place());
        return Err(inconsistent(key, what));
    }
    Ok(())
}
