//! `cargo xtask probe`: builds the preload library.

use crate::shell::{cargo, root, run};

/// File name of the preload library.
const FILE: &str = "libdeepxtrace_nccl_probe.so";

/// Builds it in the release profile and says where it is.
pub fn build() -> Result<(), String> {
    run(&mut cargo(&["build", "--release", "--package", "deepxtrace-nccl-probe"]))?;
    let target =
        std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), Into::into);
    let file = target.join("release").join(FILE);
    if !file.exists() {
        return Err(format!(
            "{} was not built: the probe is for Linux on x86-64 and aarch64",
            file.display()
        ));
    }
    println!("{}", file.display());
    Ok(())
}
