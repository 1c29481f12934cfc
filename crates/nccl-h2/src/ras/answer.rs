//! One answer of RAS: the state of all communicators of a job at a moment.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer};

use crate::ras::error::RasError;
use crate::ras::repair;

/// One answer of RAS. Values that an answer does not have are empty, or -1.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Answer {
    /// Version of NCCL.
    #[serde(default, deserialize_with = "text")]
    pub nccl_version: String,
    /// When it was given, `YYYY-MM-DD HH:MM:SS` by the clock of the host that was asked.
    #[serde(default, deserialize_with = "text")]
    pub timestamp: String,
    /// The communicators of the job.
    #[serde(default)]
    pub communicators: Vec<Communicator>,
    /// Places in which its JSON had to be mended.
    #[serde(skip)]
    pub mended: usize,
}

/// A communicator as RAS sees it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Communicator {
    /// Names the communicator within the job, with its secondary hash.
    #[serde(default, deserialize_with = "text")]
    pub hash: String,
    /// Tells communicators of one hash apart.
    #[serde(default, deserialize_with = "text")]
    pub secondary_hash: String,
    /// Ranks that it has.
    #[serde(default = "unknown", deserialize_with = "number")]
    pub size: i64,
    /// Ranks that answered.
    #[serde(default)]
    pub ranks: Vec<Rank>,
    /// Ranks that did not.
    #[serde(default)]
    pub missing_ranks: Vec<MissingRank>,
}

/// A rank that answered.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Rank {
    /// Rank in the communicator.
    #[serde(default = "unknown", deserialize_with = "number")]
    pub rank: i64,
    /// Its host.
    #[serde(default, deserialize_with = "text")]
    pub host: String,
    /// Its process.
    #[serde(default = "unknown", deserialize_with = "number")]
    pub pid: i64,
    /// What it says of itself.
    #[serde(default)]
    pub status: Status,
    /// Operations that it has *launched*, by name. That they are over is not said.
    #[serde(default)]
    pub collective_counts: BTreeMap<String, i64>,
}

/// What a rank says of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub struct Status {
    /// `ncclResult_t` of the communicator's creation; 7 while it goes on.
    #[serde(default, deserialize_with = "number")]
    pub init_state: i64,
    /// `ncclResult_t` of the latest asynchronous error.
    #[serde(default, deserialize_with = "number")]
    pub async_error: i64,
    /// The program has called `ncclCommFinalize`.
    #[serde(default)]
    pub finalize_called: bool,
    /// The program has called `ncclCommDestroy`.
    #[serde(default)]
    pub destroy_flag: bool,
    /// The communicator is aborted.
    #[serde(default)]
    pub abort_flag: bool,
}

/// A rank that did not answer.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct MissingRank {
    /// Rank in the communicator.
    #[serde(default = "unknown", deserialize_with = "number")]
    pub rank: i64,
    /// Its host.
    #[serde(default, deserialize_with = "text")]
    pub host: String,
    /// Its process.
    #[serde(default = "unknown", deserialize_with = "number")]
    pub pid: i64,
    /// Why it is missing.
    #[serde(default)]
    pub status: MissingStatus,
}

/// Why a rank is missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
pub struct MissingStatus {
    /// It does not answer.
    #[serde(default)]
    pub unresponsive: bool,
    /// RAS has given it up.
    #[serde(default)]
    pub considered_dead: bool,
}

impl Answer {
    /// Reads an answer: the JSON object in a text that may begin with the lines of the protocol.
    ///
    /// Commas that older versions leave out are mended.
    ///
    /// ```
    /// use deepxtrace_nccl_h2::ras::Answer;
    ///
    /// let text = "SERVER PROTOCOL 2\nOK\n{\"nccl_version\": \"2.28.9\" \"communicators\": []}\n";
    /// let answer = Answer::parse(text)?;
    /// assert_eq!((answer.nccl_version.as_str(), answer.mended), ("2.28.9", 1));
    /// # Ok::<(), deepxtrace_nccl_h2::ras::RasError>(())
    /// ```
    ///
    /// # Errors
    /// [`RasError::NoJson`] where there is no such object, or one that is cut short or not mended.
    pub fn parse(text: &str) -> Result<Self, RasError> {
        let start = text
            .match_indices('{')
            .map(|(place, _)| place)
            .find(|place| text.get(..*place).is_none_or(begins_line));
        let Some(json) = start.and_then(|place| text.get(place..)) else {
            let beginning: String = text.chars().take(80).collect();
            let problem = format!("it begins with {beginning:?} and has no object");
            return Err(RasError::NoJson { problem });
        };
        match serde_json::from_str(json) {
            Ok(answer) => Ok(answer),
            Err(first) => {
                let (mended, places) = repair::commas(json);
                let answer: Self = serde_json::from_str(&mended)
                    .map_err(|_| RasError::NoJson { problem: first.to_string() })?;
                Ok(Self { mended: places, ..answer })
            }
        }
    }

    /// Seconds since 1970 of the time stamp, read as UTC; `None` where it is no time.
    pub fn timestamp_s(&self) -> Option<i64> {
        let (date, time) = self.timestamp.split_once([' ', 'T'])?;
        let [year, month, day] = three(date, '-')?;
        let [hour, minute, second] = three(time.trim_end_matches('Z'), ':')?;
        let fits = (1..=12).contains(&month)
            && (1..=31).contains(&day)
            && (1970..=9999).contains(&year)
            && hour < 24
            && minute < 60
            && second <= 60;
        fits.then(|| days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second)
    }
}

fn begins_line(before: &str) -> bool {
    before.is_empty() || before.ends_with('\n')
}

/// Three numbers of at most four digits.
fn three(text: &str, separator: char) -> Option<[i64; 3]> {
    let mut parts = text.split(separator);
    let mut next = || {
        let part = parts.next()?.split('.').next()?;
        (1..=4).contains(&part.len()).then_some(part)?.parse::<u16>().ok().map(i64::from)
    };
    let numbers = [next()?, next()?, next()?];
    parts.next().is_none().then_some(numbers)
}

/// Days from 1970-01-01, by the rule of leap years. The year is at least 1970.
fn days(year: i64, month: i64, day: i64) -> i64 {
    const BEFORE: [i64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let leaps = |year: i64| year / 4 - year / 100 + year / 400;
    let leap_year = (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
    let month = usize::try_from(month).unwrap_or(1);
    let before = BEFORE.get(month.saturating_sub(1)).copied().unwrap_or(0);
    let leap_day = i64::from(leap_year && month > 2);
    (year - 1970) * 365 + leaps(year - 1) - leaps(1969) + before + leap_day + day - 1
}

fn unknown() -> i64 {
    -1
}

/// A value as versions write it: as a number or as text.
#[derive(Deserialize)]
#[serde(untagged)]
enum Scalar {
    Number(i64),
    Text(String),
    Other(serde::de::IgnoredAny),
}

fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<i64, D::Error> {
    Ok(match Scalar::deserialize(deserializer)? {
        Scalar::Number(number) => number,
        Scalar::Text(text) => text.trim().parse().unwrap_or(-1),
        Scalar::Other(_) => -1,
    })
}

fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Ok(match Scalar::deserialize(deserializer)? {
        Scalar::Number(number) => number.to_string(),
        Scalar::Text(text) => text,
        Scalar::Other(_) => String::new(),
    })
}
