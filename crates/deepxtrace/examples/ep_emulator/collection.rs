//! deepxtrace in the emulated program: counters, collection and diagnosis of one rank.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use cudarc::driver::CudaStream;
use deepxtrace::collect::{CudaDevice, CudaMemory, LocalGroup};
use deepxtrace::config::{Config, Mode};
use deepxtrace::{Builder, Counters as Which, Diagnose, Report, SyncStep};

use crate::Failure;
use crate::gpu::{Pointers, World};
use crate::options::Options;
use crate::rank::Counters;
use crate::report::Record;

/// A rank before the ranks have met.
pub struct Start {
    builder: Box<dyn FnOnce() -> Builder + Send>,
    stream: Arc<CudaStream>,
}

/// A rank of the group.
pub struct Collection {
    diagnose: Diagnose,
    stream: Arc<CudaStream>,
}

impl Collection {
    /// One for each rank, in order.
    pub fn all(
        options: &Options,
        world: &World,
        run: usize,
        record: &Arc<Mutex<Record>>,
    ) -> Result<Vec<Start>, Failure> {
        let mut config = Config {
            enabled: true,
            mode: Mode::Synchronous,
            sync_step: 1,
            warming_time: Some(Duration::ZERO),
            ranks_per_node: options.ranks_per_node as usize,
            ..Config::default()
        };
        match &options.out {
            Some(folder) => {
                config.log_path = folder.join(format!("log_run{run}"));
                config.log_details = options.log_details;
                if options.artifacts {
                    config.artifact_path = Some(folder.join(format!("windows_run{run}")));
                }
            }
            None => config.log_path = std::env::temp_dir().join("deepxtrace-ep-emulator"),
        }
        let groups = LocalGroup::new(options.ranks())?.into_iter().enumerate();
        groups
            .map(|(rank, group)| {
                let context = &world.gpu(rank).context;
                context.bind_to_thread()?;
                let stream = context.new_stream()?;
                let device = CudaDevice::new(context.ordinal())?;
                let (config, record) = (config.clone(), Arc::clone(record));
                let raw = stream.cu_stream().expose_provenance();
                let builder = move || {
                    let raw = std::ptr::with_exposed_provenance_mut(raw);
                    // SAFETY: the stream is kept beside the `Diagnose` and dropped after it.
                    let memory = unsafe { CudaMemory::on_stream(&device, raw) };
                    Diagnose::builder(group, config)
                        .counters(Which::Normal)
                        .memory(memory)
                        .on_report(move |report| {
                            if let Report::Normal(report) = report {
                                let mut record =
                                    record.lock().unwrap_or_else(PoisonError::into_inner);
                                record.window(report.window, report.diagnosis);
                            }
                        })
                };
                Ok(Start { builder: Box::new(builder), stream })
            })
            .collect()
    }

    pub fn stream(&self) -> Arc<CudaStream> {
        Arc::clone(&self.stream)
    }

    /// Where the kernels count.
    pub fn counters(&self) -> Result<Counters, Failure> {
        let dispatch = self.diagnose.dispatch_bundle().ok_or("a dispatch bundle")?;
        let combine = self.diagnose.combine_bundle().ok_or("a combine bundle")?;
        let (d, c) = (dispatch.raw().map(|part| part.address), combine.raw().map(|p| p.address));
        Ok(Counters {
            notify_dispatch: Pointers([d[0], d[1]]),
            cached_notify_dispatch: Pointers([d[2], d[3]]),
            dispatch_final: Pointers([d[4], d[5], d[6]]),
            dispatch_rdma_recv: Pointers([d[7], d[8], d[9]]),
            cached_notify_combine: Pointers([c[0], c[1]]),
            combine_logical_recv: Pointers([c[2], c[3], c[4]]),
        })
    }

    /// One synchronous collection: the end of a window.
    pub fn step(&mut self) -> Result<(), Failure> {
        match self.diagnose.diagnose_normal_sync()? {
            SyncStep::Collected => Ok(()),
            other => Err(format!("the window was not collected: {other:?}").into()),
        }
    }

    pub fn stop(mut self) -> Result<(), Failure> {
        if self.diagnose.stop() { Ok(()) } else { Err("deepxtrace did not stop".into()) }
    }
}

impl Start {
    pub fn join(self) -> Result<Collection, Failure> {
        let mut diagnose = (self.builder)().build()?.ok_or("collection is enabled")?;
        diagnose.start()?;
        Ok(Collection { diagnose, stream: self.stream })
    }
}
