//! The log of the demo: one summary line a window.

use std::io::Write;

use jiff::Timestamp;

use super::job::Window;

/// Writes the line of a window.
pub fn line(log: &mut impl Write, window: &Window<'_>) -> anyhow::Result<()> {
    let time = Timestamp::from_nanosecond(i128::from(window.asked_unix_ns))?;
    let report = window.report;
    write!(
        log,
        "[{}] [Diagnose] InstanceID: {} EPSize: {} WindowIndex: {}, {}",
        time.strftime("%Y-%m-%dT%H:%M:%S%.3f"),
        window.instance,
        window.ep_size,
        report.window_index,
        report.state
    )?;
    for (probe, result) in report.probes.iter() {
        write!(log, ", {probe}: {}", result.status)?;
    }
    writeln!(log, ", incidents: {}", serde_json::to_string(&report.incidents)?)?;
    Ok(())
}
