//! What several modules use.

use std::path::Path;

use deepxtrace_nccl_h2::{Analyzer, Config, Finding, Moment, RunFolder, TraceReader};

/// Unpacks an archive of recordings from the test data into a folder.
pub fn unpack(archive: &str, folder: &Path) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(archive);
    let file = std::fs::File::open(path).unwrap();
    tar::Archive::new(flate2::read::GzDecoder::new(file)).unpack(folder).unwrap();
}

/// All findings of a folder, read to its end.
pub fn analyze(folder: &Path, config: Config, stood_still_s: f64) -> Vec<Finding> {
    let run = RunFolder::find(folder, None).unwrap();
    let mut analyzer = Analyzer::new(run.run_id.clone(), config);
    let reader = TraceReader::new(run.files().unwrap());
    let report = reader.read(
        2,
        |event, receipt| {
            analyzer.ingest(event, receipt);
        },
        |_| {},
    );
    assert_eq!(report.bad_lines(), 0);
    let end = analyzer.newest_receipt_ns().unwrap() + (stood_still_s * 1e9) as i64;
    analyzer.finish(Moment { monotonic_ns: end, unix_ns: end })
}
