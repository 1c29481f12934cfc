//! A finished drawing, and the formats it can be turned into.

use std::fmt;
use std::str::FromStr;

use crate::error::PictureError;

/// A file format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Format {
    /// A raster image.
    #[default]
    Png,
    /// A vector image for browsers.
    Svg,
    /// A vector image for print; its letters are outlines, not text to select.
    Pdf,
}

impl Format {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Png, Self::Svg, Self::Pdf];

    /// The name on the command line, and the extension of files.
    #[must_use]
    pub fn extension(self) -> &'static str {
        match self {
            Self::Png => "png",
            Self::Svg => "svg",
            Self::Pdf => "pdf",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.extension())
    }
}

impl FromStr for Format {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|format| format.extension() == name)
            .ok_or_else(|| format!("format {name:?} is not one of png, svg, pdf"))
    }
}

/// A finished drawing.
#[derive(Debug, Clone, PartialEq)]
pub struct Picture {
    svg: String,
    width: f64,
    height: f64,
}

impl Picture {
    pub(crate) fn new(svg: String, width: f64, height: f64) -> Self {
        Self { svg, width, height }
    }

    /// The drawing as SVG.
    #[must_use]
    pub fn svg(&self) -> &str {
        &self.svg
    }

    /// Width and height in CSS pixels, 96 an inch.
    #[must_use]
    pub fn size(&self) -> (f64, f64) {
        (self.width, self.height)
    }
}

/// Turns drawings into files; it holds the fonts, so keep one for many pictures.
#[derive(Clone, Default)]
pub struct Renderer {
    #[cfg(any(feature = "png", feature = "pdf"))]
    fonts: std::sync::Arc<usvg::fontdb::Database>,
}

impl fmt::Debug for Renderer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Renderer")
    }
}

impl Renderer {
    /// Loads the embedded fonts. Fonts of the system are never looked at, so the pictures are the
    /// same everywhere.
    #[must_use]
    pub fn new() -> Self {
        #[cfg(any(feature = "png", feature = "pdf"))]
        {
            let mut fonts = usvg::fontdb::Database::new();
            for font in [dejavu::sans::regular(), dejavu::sans::bold()] {
                let source = usvg::fontdb::Source::Binary(std::sync::Arc::new(font));
                fonts.load_font_source(source);
            }
            Self { fonts: std::sync::Arc::new(fonts) }
        }
        #[cfg(not(any(feature = "png", feature = "pdf")))]
        Self {}
    }

    /// The picture as a file of `format`; `dpi` counts for PNG only.
    ///
    /// # Errors
    ///
    /// - `dpi` is not in 10 to 1200, or the image would have more than [`MAX_PIXELS`] pixels
    /// - the format is not compiled in (features `png` and `pdf`), or the converter failed
    pub fn render(
        &self,
        picture: &Picture,
        format: Format,
        dpi: f64,
    ) -> Result<Vec<u8>, PictureError> {
        match format {
            Format::Svg => Ok(picture.svg.clone().into_bytes()),
            Format::Png => self.png(picture, dpi),
            Format::Pdf => self.pdf(picture),
        }
    }

    #[cfg(any(feature = "png", feature = "pdf"))]
    fn tree(&self, picture: &Picture, format: &'static str) -> Result<usvg::Tree, PictureError> {
        let options = usvg::Options {
            font_family: "DejaVu Sans".into(),
            fontdb: self.fonts.clone(),
            ..usvg::Options::default()
        };
        usvg::Tree::from_str(&picture.svg, &options)
            .map_err(|error| PictureError::Convert { format, reason: error.to_string() })
    }

    #[cfg(feature = "png")]
    fn png(&self, picture: &Picture, dpi: f64) -> Result<Vec<u8>, PictureError> {
        let failed = |reason: String| PictureError::Convert { format: "PNG", reason };
        if !(10.0..=1200.0).contains(&dpi) {
            let (option, allowed) = ("dpi", "from 10 to 1200");
            return Err(PictureError::Option { option, value: dpi, allowed });
        }
        let scale = dpi / crate::draw::PIXELS_PER_INCH;
        let pixels = |side: f64| (side * scale).ceil().max(1.0) as u32;
        let (width, height) = (pixels(picture.width), pixels(picture.height));
        if u64::from(width) * u64::from(height) > MAX_PIXELS {
            return Err(PictureError::TooLarge { width, height, dpi, limit: MAX_PIXELS });
        }
        let tree = self.tree(picture, "PNG")?;
        let mut image = resvg::tiny_skia::Pixmap::new(width, height)
            .ok_or_else(|| failed(format!("no image of {width} x {height} pixels")))?;
        // The picture may end within the last pixel.
        image.fill(resvg::tiny_skia::Color::WHITE);
        let transform = resvg::tiny_skia::Transform::from_scale(scale as f32, scale as f32);
        resvg::render(&tree, transform, &mut image.as_mut());
        encode(&image).map_err(|error| failed(error.to_string()))
    }

    #[cfg(not(feature = "png"))]
    fn png(&self, _: &Picture, _: f64) -> Result<Vec<u8>, PictureError> {
        Err(missing("PNG", "png"))
    }

    #[cfg(feature = "pdf")]
    fn pdf(&self, picture: &Picture) -> Result<Vec<u8>, PictureError> {
        // Letters as outlines: embedding fonts in a PDF would bring the largest part of all code that
        // a release build of the command compiles.
        let outlines = usvg::WriteOptions { preserve_text: false, ..Default::default() };
        let outlined = self.tree(picture, "PDF")?.to_string(&outlines);
        let failed = |reason: String| PictureError::Convert { format: "PDF", reason };
        let tree = usvg::Tree::from_str(&outlined, &usvg::Options::default())
            .map_err(|error| failed(error.to_string()))?;
        // One point is 1/72 inch, one pixel 1/96.
        let page = svg2pdf::PageOptions { dpi: crate::draw::PIXELS_PER_INCH as f32 };
        svg2pdf::to_pdf(&tree, svg2pdf::ConversionOptions::default(), page)
            .map_err(|error| failed(error.to_string()))
    }

    #[cfg(not(feature = "pdf"))]
    fn pdf(&self, _: &Picture) -> Result<Vec<u8>, PictureError> {
        Err(missing("PDF", "pdf"))
    }
}

/// Encodes an image without transparency: every drawing has a white background.
#[cfg(feature = "png")]
fn encode(image: &resvg::tiny_skia::Pixmap) -> Result<Vec<u8>, png::EncodingError> {
    let colors: Vec<u8> =
        image.pixels().iter().flat_map(|p| [p.red(), p.green(), p.blue()]).collect();
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, image.width(), image.height());
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_compression(png::Compression::Default);
    encoder.set_filter(png::FilterType::NoFilter);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(&colors)?;
    writer.finish()?;
    Ok(bytes)
}

#[cfg(not(all(feature = "png", feature = "pdf")))]
fn missing(format: &'static str, feature: &str) -> PictureError {
    let reason = format!("deepxtrace-heatmap was built without its feature {feature:?}");
    PictureError::Convert { format, reason }
}

/// Largest number of pixels of a PNG: 400 MB of memory.
pub const MAX_PIXELS: u64 = 100_000_000;
