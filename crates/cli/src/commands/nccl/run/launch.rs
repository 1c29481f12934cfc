//! Starting the job, passing signals on, waiting for its end.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use anyhow::Context;
use rustix::process::{Pid, Signal, kill_process};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};
use signal_hook::iterator::SignalsInfo;
use signal_hook::iterator::exfiltrator::origin::WithOrigin;
use signal_hook::low_level::siginfo::Cause;

/// Signals that are passed on to the job.
const PASSED_ON: [i32; 6] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2];
/// Time between two looks whether the job has ended.
const STEP: Duration = Duration::from_millis(50);

/// The job.
pub struct Job {
    child: Child,
    signals: SignalsInfo<WithOrigin>,
}

impl Job {
    /// Starts it. Its input and output are those of this process.
    pub fn start(
        program: &std::ffi::OsStr,
        arguments: &[OsString],
        environment: Vec<(OsString, OsString)>,
    ) -> anyhow::Result<Self> {
        let signals = SignalsInfo::new(PASSED_ON).context("signals")?;
        let mut command = Command::new(program);
        command.args(arguments).envs(environment);
        let child =
            command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
        Ok(Self { child, signals })
    }

    /// Waits for the end, calling `meanwhile` again and again.
    pub fn wait(&mut self, mut meanwhile: impl FnMut()) -> anyhow::Result<ExitStatus> {
        loop {
            self.pass_signals_on();
            if let Some(status) = self.child.try_wait().context("cannot wait for the job")? {
                return Ok(status);
            }
            meanwhile();
            std::thread::sleep(STEP);
        }
    }

    /// What a terminal sends, it sends to the job as well; what somebody sent to this process alone
    /// is passed on.
    fn pass_signals_on(&mut self) {
        for origin in self.signals.pending() {
            let from_terminal = matches!(origin.cause, Cause::Kernel);
            let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
            if let (false, Some(pid), Some(signal)) =
                (from_terminal, pid, Signal::from_named_raw(origin.signal))
            {
                // It may have ended this moment, which is noticed next.
                let _ = kill_process(pid, signal);
            }
        }
    }
}

/// The exit code for a status, as a shell gives it: 128 and the signal for a job that was killed.
pub fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    u8::try_from(code.unwrap_or(255)).unwrap_or(255)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_becomes_a_code_as_in_a_shell() {
        assert_eq!(exit_code(ExitStatus::from_raw(0)), 0);
        assert_eq!(exit_code(ExitStatus::from_raw(3 << 8)), 3);
        assert_eq!(exit_code(ExitStatus::from_raw(9)), 137);
        assert_eq!(exit_code(ExitStatus::from_raw(15)), 143);
    }
}
