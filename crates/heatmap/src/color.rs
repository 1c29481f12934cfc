//! Colours and colour maps.

use std::fmt;
use std::str::FromStr;

/// A colour of the sRGB space.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rgb(pub u8, pub u8, pub u8);

impl Rgb {
    /// Black or white, whichever can be read on this colour.
    pub(crate) fn readable_text(self) -> &'static str {
        let luma = 299 * u32::from(self.0) + 587 * u32::from(self.1) + 114 * u32::from(self.2);
        if luma > 140_000 { "#000" } else { "#fff" }
    }
}

impl fmt::Display for Rgb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "#{:02x}{:02x}{:02x}", self.0, self.1, self.2)
    }
}

/// How a value becomes a colour. All of them rise evenly in lightness, so they can be read by
/// colour-blind readers and in grey print.
///
/// Each is interpolated between 17 control points of the published map.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Colormap {
    /// Dark violet over green to yellow.
    #[default]
    Viridis,
    /// Dark blue over grey to yellow: looks nearly the same with and without red-green blindness.
    Cividis,
    /// Black over magenta to light yellow.
    Magma,
    /// White to black, for print.
    Gray,
}

type Points = [(u8, u8, u8); 17];

const VIRIDIS: Points = [
    (68, 1, 84),
    (72, 24, 106),
    (71, 45, 123),
    (66, 64, 134),
    (59, 82, 139),
    (51, 99, 141),
    (44, 114, 142),
    (38, 129, 142),
    (33, 144, 140),
    (31, 159, 136),
    (40, 174, 128),
    (62, 188, 116),
    (93, 201, 99),
    (130, 211, 76),
    (171, 220, 50),
    (213, 226, 26),
    (253, 231, 37),
];

const CIVIDIS: Points = [
    (0, 34, 78),
    (0, 46, 106),
    (26, 56, 111),
    (50, 67, 109),
    (67, 78, 108),
    (82, 89, 109),
    (97, 101, 111),
    (111, 112, 115),
    (124, 123, 120),
    (139, 135, 120),
    (155, 147, 118),
    (171, 160, 114),
    (187, 173, 108),
    (204, 186, 100),
    (221, 201, 88),
    (239, 215, 72),
    (254, 232, 56),
];

const MAGMA: Points = [
    (0, 0, 4),
    (10, 8, 34),
    (29, 17, 70),
    (54, 16, 106),
    (80, 18, 124),
    (105, 28, 129),
    (130, 38, 129),
    (156, 46, 127),
    (182, 55, 121),
    (207, 65, 112),
    (230, 81, 99),
    (245, 105, 92),
    (251, 135, 97),
    (254, 165, 113),
    (254, 195, 135),
    (253, 224, 162),
    (252, 253, 191),
];

impl Colormap {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Viridis, Self::Cividis, Self::Magma, Self::Gray];

    /// The name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Viridis => "viridis",
            Self::Cividis => "cividis",
            Self::Magma => "magma",
            Self::Gray => "gray",
        }
    }

    /// The colour of `t` in `[0, 1]`; what lies outside takes the colour of the end.
    pub(crate) fn color(self, t: f64) -> Rgb {
        let t = if t.is_nan() { 0.0 } else { t.clamp(0.0, 1.0) };
        let points = match self {
            Self::Viridis => &VIRIDIS,
            Self::Cividis => &CIVIDIS,
            Self::Magma => &MAGMA,
            Self::Gray => {
                let level = mix(250, 20, t);
                return Rgb(level, level, level);
            }
        };
        let place = t * (points.len() - 1) as f64;
        let i = (place as usize).min(points.len() - 2);
        let (a, b, rest) = (points[i], points[i + 1], place - i as f64);
        Rgb(mix(a.0, b.0, rest), mix(a.1, b.1, rest), mix(a.2, b.2, rest))
    }
}

impl fmt::Display for Colormap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Colormap {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|map| map.name() == name).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("colour map {name:?} is not one of {names}")
        })
    }
}

fn mix(a: u8, b: u8, t: f64) -> u8 {
    (f64::from(a) + (f64::from(b) - f64::from(a)) * t).round() as u8
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Read off the published 256-entry tables.
    #[test]
    fn maps_meet_the_published_tables_at_ends_and_middle() {
        assert_eq!(Colormap::Viridis.color(0.0), Rgb(68, 1, 84));
        assert_eq!(Colormap::Viridis.color(1.0), Rgb(253, 231, 37));
        let Rgb(r, g, b) = Colormap::Viridis.color(0.25);
        assert!(r.abs_diff(59) <= 2 && g.abs_diff(82) <= 2 && b.abs_diff(139) <= 2);
        assert_eq!(Colormap::Cividis.color(1.0), Rgb(254, 232, 56));
        assert_eq!(Colormap::Magma.color(0.0), Rgb(0, 0, 4));
    }

    #[test]
    fn lightness_rises_so_that_no_two_values_look_alike_without_colour() {
        for map in Colormap::ALL {
            let luma = |t| {
                let Rgb(r, g, b) = map.color(t);
                0.2126 * f64::from(r) + 0.7152 * f64::from(g) + 0.0722 * f64::from(b)
            };
            let sign = if map == Colormap::Gray { -1.0 } else { 1.0 };
            for i in 0..16 {
                let (a, b) = (f64::from(i) / 16.0, f64::from(i + 1) / 16.0);
                assert!(sign * (luma(b) - luma(a)) > 3.0, "{map} from {a} to {b}");
            }
        }
    }

    #[test]
    fn values_outside_take_the_colour_of_the_end() {
        let map = Colormap::Viridis;
        assert_eq!(map.color(-1.0), map.color(0.0));
        assert_eq!(map.color(f64::INFINITY), map.color(1.0));
        assert_eq!(map.color(f64::NAN), map.color(0.0));
    }

    #[test]
    fn an_unknown_map_is_refused_with_the_known_ones() {
        assert_eq!("cividis".parse(), Ok(Colormap::Cividis));
        let error = "jet".parse::<Colormap>().unwrap_err();
        assert_eq!(error, "colour map \"jet\" is not one of viridis, cividis, magma, gray");
    }
}
