//! What killed processes of this host left in their rings.

use std::path::Path;

/// Writes it to the trace in `folder`, and says what could not be written.
#[cfg(target_os = "linux")]
pub fn take_up(folder: &Path) {
    use super::warnings::warn;

    if !folder.is_dir() {
        return;
    }
    match deepxtrace_nccl_ring::recover(folder, &deepxtrace_nccl_ring::ring_folder()) {
        Ok(found) => {
            for (path, error) in found.failed {
                warn(&format!("{}: the last calls of a process: {error}", path.display()));
            }
        }
        // A trace from elsewhere on a host without a memory file system has no rings here.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => warn(&format!("{}: {error}", folder.display())),
    }
}

/// Rings are there on Linux only.
#[cfg(not(target_os = "linux"))]
pub fn take_up(_: &Path) {}
