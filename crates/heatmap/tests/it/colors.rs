//! What colour a pixel has: values, cells without data, outlines.

use deepxtrace_counters::Topology;
use deepxtrace_heatmap::{
    Annotate, Area, Caption, Cell, Colormap, Format, Mark, MatrixPlot, Place, Renderer, Style,
};
use ndarray::Array2;

type Rgb = [u8; 3];

/// Colours of the published viridis table at its ends.
const LOWEST: Rgb = [68, 1, 84];
const HIGHEST: Rgb = [253, 231, 37];
const OUTSIDE: Rgb = [220, 220, 226];
const MARK: Rgb = [211, 0, 108];

struct Image {
    width: usize,
    pixels: Vec<Rgb>,
}

fn render(plot: &MatrixPlot, style: &Style) -> Image {
    let picture = plot.draw(style).unwrap();
    let bytes = Renderer::new().render(&picture, Format::Png, 96.0).unwrap();
    let mut reader = png::Decoder::new(&bytes[..]).read_info().unwrap();
    let mut pixels = vec![0; reader.output_buffer_size()];
    let info = reader.next_frame(&mut pixels).unwrap();
    assert_eq!(info.color_type, png::ColorType::Rgb);
    let (width, height) = picture.size();
    assert_eq!(f64::from(info.width), width.ceil());
    assert_eq!(f64::from(info.height), height.ceil());
    let pixels = pixels.chunks_exact(3).map(|p| [p[0], p[1], p[2]]).collect();
    Image { width: info.width as usize, pixels }
}

impl Image {
    fn count(&self, color: Rgb) -> usize {
        self.pixels.iter().filter(|&&pixel| pixel == color).count()
    }

    /// The leftmost and the uppermost pixel of a colour in the upper 300 rows, which end above the
    /// legend.
    fn corner(&self, color: Rgb) -> (usize, usize) {
        let upper = self.pixels.iter().take(300 * self.width).enumerate();
        let places = upper.filter(|(_, pixel)| **pixel == color);
        places.fold((usize::MAX, usize::MAX), |(left, top), (i, _)| {
            (left.min(i % self.width), top.min(i / self.width))
        })
    }
}

/// A matrix of four ranks in which all is 100 but what `change` changes.
fn plot(change: impl FnOnce(&mut Array2<Cell>)) -> MatrixPlot {
    let mut cells = Array2::from_elem((4, 4), Cell::Value(100.0));
    change(&mut cells);
    MatrixPlot {
        caption: Caption {
            title: "title".into(),
            subtitle: String::new(),
            outcome: None,
            notes: Vec::new(),
        },
        topology: Topology::new(4, 4).unwrap(),
        row_axis: "rows".into(),
        column_axis: "columns".into(),
        value_label: "cycles".into(),
        no_data_label: "nothing measured".into(),
        outside_label: "not judged".into(),
        cells,
        marks: Vec::new(),
    }
}

fn plain() -> Style {
    Style { annotate: Annotate::Never, ..Style::default() }
}

/// A cell of a group of four is 96 x 96 pixels; frame and colour bar take or give a few.
const CELL: usize = 96 * 96;
const ONE_CELL: std::ops::Range<usize> = CELL - 600..CELL + 600;

#[test]
fn the_largest_value_has_the_upper_colour_and_the_smallest_the_lower() {
    let image = render(&plot(|cells| cells[[1, 2]] = Cell::Value(300.0)), &plain());
    let highest = image.count(HIGHEST);
    assert!(ONE_CELL.contains(&highest), "{highest} pixels of {CELL}");
    assert!(image.count(LOWEST) > 14 * CELL);
}

#[test]
fn a_cell_without_data_is_never_coloured_as_a_value() {
    let all = render(&plot(|cells| cells[[0, 0]] = Cell::Value(300.0)), &plain());
    for cell in [Cell::NoData, Cell::Outside, Cell::Value(f64::NAN), Cell::Value(f64::INFINITY)] {
        let plot = plot(|cells| {
            cells[[0, 0]] = Cell::Value(300.0);
            cells[[2, 2]] = cell;
        });
        let image = render(&plot, &plain());
        // One cell less has the colour of the smallest value, and none more that of the largest.
        let less = all.count(LOWEST) - image.count(LOWEST);
        assert!(ONE_CELL.contains(&less), "{cell:?}: {less} pixels of {CELL}");
        assert_eq!(image.count(HIGHEST), all.count(HIGHEST));
    }
}

#[test]
fn a_zero_that_was_measured_is_a_value() {
    let image = render(&plot(|cells| cells[[3, 3]] = Cell::Value(0.0)), &plain());
    let lowest = image.count(LOWEST);
    assert!(ONE_CELL.contains(&lowest), "{lowest} pixels of {CELL}");
}

#[test]
fn cells_outside_the_test_are_plain_grey() {
    let plot = plot(|cells| {
        for i in 0..4 {
            cells[[i, i]] = Cell::Outside;
        }
    });
    assert!(render(&plot, &plain()).count(OUTSIDE) > 4 * (CELL - 400));
}

#[test]
fn a_finding_is_outlined_where_it_is() {
    let mut plot = plot(|cells| cells[[0, 0]] = Cell::Outside);
    let clean = render(&plot, &plain());
    assert_eq!(clean.count(MARK), 0);
    // The upper left corner of the plot is 96 pixels above the row that is marked.
    let (plot_left, plot_top) = clean.corner(OUTSIDE);
    let areas = vec![Area { rows: 1..2, columns: 0..4 }];
    plot.marks = vec![Mark { text: "row".into(), place: Place::Areas(areas) }];
    let image = render(&plot, &plain());
    let (_, top) = image.corner(MARK);
    assert!(top.abs_diff(plot_top + 96) <= 2, "{top} against {plot_top} + 96");
    // Half-way down the row, its left edge is marked, and the inside of the row is not.
    let row = (plot_top + 96 + 48) * image.width;
    assert!((plot_left - 2..plot_left + 2).any(|x| image.pixels[row + x] == MARK));
    assert!((plot_left + 4..plot_left + 4 * 96 - 4).all(|x| image.pixels[row + x] != MARK));
}

#[test]
fn noise_of_a_few_percent_does_not_use_the_whole_scale() {
    let image = render(&plot(|cells| cells[[1, 2]] = Cell::Value(103.0)), &plain());
    // Only the colour bar has the ends: 18 pixels wide, one step of 96 high.
    assert!(image.count(HIGHEST) < 200 && image.count(LOWEST) < 200);
}

#[test]
fn every_colour_map_draws_its_own_ends() {
    for (map, highest) in [(Colormap::Cividis, [254, 232, 56]), (Colormap::Magma, [252, 253, 191])]
    {
        let style = Style { colormap: map, ..plain() };
        let image = render(&plot(|cells| cells[[1, 2]] = Cell::Value(300.0)), &style);
        assert!(image.count(highest) > CELL - 600, "{map}");
    }
}
