//! The JSON form, to the letter.

use deepxtrace_ll::{
    AbnormalAxis, AbnormalPoint, Arrival, LlDiagnosis, LlFinding, MeanRatioReport, PathScope,
    TopologyReport,
};

fn diagnosis() -> LlDiagnosis {
    LlDiagnosis {
        shape: [16, 16],
        mean_ratio: MeanRatioReport {
            abnormal_cols: vec![AbnormalAxis { index: 4, mean: 7.5, ratio: 6.25 }],
            abnormal_rows: vec![],
            abnormal_points: vec![AbnormalPoint { row: 1, col: 2, value: 3, ratio: 5.5 }],
        },
        topology: TopologyReport {
            findings: vec![
                LlFinding::Column {
                    rank: 4,
                    path: PathScope::All,
                    ratio: 81.5,
                    score: 9.0,
                    arrival: Arrival::Late,
                },
                LlFinding::Row { rank: 1, path: PathScope::InterNode, ratio: 2.0, score: 4.0 },
                LlFinding::Point { waiter: 1, awaited: 2, ratio: 3.0, score: 4.5 },
                LlFinding::NodeBlock { waiter_node: 1, awaited_node: 0, ratio: 2.25, score: 5.0 },
            ],
        },
    }
}

const TEXT: &str = concat!(
    r#"{"shape":[16,16],"mean_ratio":{"abnormal_cols":[[4,7.5,6.25]],"abnormal_rows":[],"#,
    r#""abnormal_points":[[1,2,3,5.5]]},"topology":{"findings":["#,
    r#"{"kind":"column","rank":4,"path":"all","ratio":81.5,"score":9.0,"arrival":"late"},"#,
    r#"{"kind":"row","rank":1,"path":"inter_node","ratio":2.0,"score":4.0},"#,
    r#"{"kind":"point","waiter":1,"awaited":2,"ratio":3.0,"score":4.5},"#,
    r#"{"kind":"node_block","waiter_node":1,"awaited_node":0,"ratio":2.25,"score":5.0}]}}"#,
);

#[test]
fn a_diagnosis_is_written_and_read_as_agreed() {
    assert_eq!(serde_json::to_string(&diagnosis()).unwrap(), TEXT);
    assert_eq!(serde_json::from_str::<LlDiagnosis>(TEXT).unwrap(), diagnosis());
}

#[test]
fn every_finding_reads_as_a_sentence() {
    let lines: Vec<String> =
        diagnosis().topology.findings.iter().map(ToString::to_string).collect();
    assert_eq!(
        lines,
        [
            "all wait for rank 4, all paths: 81.50x, score 9.0, arrival late",
            "rank 1 waits for all, inter-node paths: 2.00x, score 4.0",
            "rank 1 waits for 2: 3.00x, score 4.5",
            "node 1 waits for node 0: 2.25x, score 5.0",
        ]
    );
}
