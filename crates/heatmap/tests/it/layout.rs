//! Nothing overlaps and nothing is cut: the boxes of all texts, as the renderer sees them.

use std::sync::{Arc, LazyLock};

use deepxtrace_heatmap::{Annotate, NormalView, Picture, Style, draw_normal};
use usvg::{Group, Node, Options, Tree, fontdb};

use crate::sample::{artifact, window};

static FONTS: LazyLock<Arc<fontdb::Database>> = LazyLock::new(|| {
    let mut fonts = fontdb::Database::new();
    fonts.load_font_data(dejavu::sans::regular().to_vec());
    fonts.load_font_data(dejavu::sans::bold().to_vec());
    Arc::new(fonts)
});

fn texts(group: &Group, found: &mut Vec<(String, usvg::Rect)>) {
    for node in group.children() {
        match node {
            Node::Group(group) => texts(group, found),
            Node::Text(text) => {
                let words = text.chunks().iter().map(|chunk| chunk.text()).collect::<String>();
                found.push((words, text.abs_bounding_box()));
            }
            _ => {}
        }
    }
}

/// Checks one picture; gives how many texts it has.
fn check(picture: &Picture, what: &str) -> usize {
    let options = Options { fontdb: FONTS.clone(), ..Options::default() };
    let tree = Tree::from_str(picture.svg(), &options).unwrap();
    let (width, height) = picture.size();
    let mut found = Vec::new();
    texts(tree.root(), &mut found);
    for (text, at) in &found {
        let inside = at.left() >= 0.0
            && at.top() >= 0.0
            && f64::from(at.right()) <= width
            && f64::from(at.bottom()) <= height;
        assert!(inside, "{what}: {text:?} at {at:?} is cut, the picture is {width} x {height}");
    }
    for (i, (a, first)) in found.iter().enumerate() {
        for (b, second) in &found[i + 1..] {
            let apart = first.right() <= second.left()
                || second.right() <= first.left()
                || first.bottom() <= second.top()
                || second.bottom() <= first.top();
            assert!(apart, "{what}: {a:?} at {first:?} and {b:?} at {second:?} overlap");
        }
    }
    found.len()
}

fn check_all(n: usize, ranks_per_node: usize, missing: Option<usize>, style: &Style) {
    let artifact = artifact(window(n, ranks_per_node, missing));
    for view in NormalView::ALL {
        let picture = draw_normal(&artifact, view, style).unwrap();
        let what = format!("EP {n}, {ranks_per_node} a node, {}", view.name());
        assert!(check(&picture, &what) > 6, "{what}");
    }
}

#[test]
fn no_text_overlaps_or_is_cut_for_any_size_of_group() {
    for n in [1, 2, 3, 7, 8, 16, 17, 32, 64, 100, 128, 256] {
        check_all(n, 8, None, &Style::default());
    }
}

#[test]
fn the_largest_groups_are_legible_too() {
    for n in [512, 1100] {
        let artifact = artifact(window(n, 8, Some(n - 1)));
        let picture =
            draw_normal(&artifact, NormalView::DispatchFinalCost, &Style::default()).unwrap();
        check(&picture, &format!("EP {n}"));
        let squares = "each drawn cell is the largest of 2 x 2 pairs of ranks";
        assert_eq!(picture.svg().contains(squares), n > 1024);
    }
}

#[test]
fn no_text_overlaps_for_any_size_of_node() {
    for ranks_per_node in [1, 2, 3, 4, 6, 16, 72] {
        check_all(48, ranks_per_node, Some(5), &Style::default());
    }
}

#[test]
fn no_text_overlaps_at_the_size_that_the_user_wants() {
    for (width, height) in [(8.0, 14.0), (16.0, 12.0), (40.0, 20.0)] {
        let figsize = Some((width, height));
        check_all(16, 8, None, &Style { figsize, ..Style::default() });
        check_all(64, 8, None, &Style { figsize, cell_ratio: 0.8, ..Style::default() });
    }
    for cell_ratio in [0.5, 2.0] {
        check_all(16, 8, None, &Style { cell_ratio, ..Style::default() });
    }
}

#[test]
fn values_that_are_always_wanted_never_leave_their_cells() {
    let style = Style { annotate: Annotate::Always, ..Style::default() };
    check_all(16, 8, None, &style);
    check_all(32, 8, None, &style);
}

#[test]
fn long_titles_and_instances_stay_within_the_picture() {
    let mut artifact = artifact(window(8, 8, None));
    artifact.instance = "x".repeat(128).into();
    let style = Style { title: Some("long title ".repeat(40)), ..Style::default() };
    for view in NormalView::ALL {
        check(&draw_normal(&artifact, view, &style).unwrap(), view.name());
    }
}

#[test]
fn many_findings_are_numbered_and_listed_without_overlap() {
    // Every fourth rank is slow: more rows than are listed.
    let mut window = window(64, 8, None);
    for probe in deepxtrace_counters::CompletionProbe::ALL {
        window.edit_completion(probe, |delta| {
            for s in (0..64).step_by(4) {
                delta.cost.row_mut(s).mapv_inplace(|cost| cost * 3);
            }
        });
    }
    let artifact = artifact(window);
    let picture = draw_normal(&artifact, NormalView::DispatchFinalCost, &Style::default()).unwrap();
    check(&picture, "many findings");
    assert!(picture.svg().contains("more, outlined without a number"));
}
