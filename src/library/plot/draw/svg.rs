//! Figures as SVG.

use super::figure::{Anchor, Canvas, Color, Point};
use super::picture::Picture;
use crate::base::Result;
use std::fmt::Write;

/// An SVG document being written.
pub struct Svg(String);

impl Svg {
    /// An empty figure of this size.
    pub fn new(width: usize, height: usize) -> Svg {
        Svg(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} \
             {height}\" font-family=\"'Noto Sans', 'DejaVu Sans', Arial, sans-serif\">\n"
        ))
    }

    /// The complete document.
    pub fn finish(mut self) -> String {
        self.0.push_str("</svg>\n");
        self.0
    }
}

/// A picture as SVG, with its original pixels.
///
/// # Errors
/// Those of the PNG encoder.
pub fn picture(picture: &Picture, width: usize, height: usize) -> Result<String> {
    let mut png = std::io::Cursor::new(Vec::new());
    let (across, down) = (picture.width, picture.height);
    crate::files::png::write_rgb(&mut png, across, down, picture.bytes())?;
    let mut svg = Svg::new(width, height);
    let _ = writeln!(
        svg.0,
        "<image width=\"{width}\" height=\"{height}\" preserveAspectRatio=\"none\" style=\"image-rendering: pixelated\" \
         href=\"data:image/png;base64,{}\"/>",
        base64(&png.into_inner())
    );
    Ok(svg.finish())
}

/// Source: RFC 4648.
fn base64(bytes: &[u8]) -> String {
    const SIGNS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let all = three.iter().fold(0u32, |all, b| all << 8 | u32::from(*b)) << (8 * (3 - three.len()));
        for sign in 0..4 {
            let index = (all >> (18 - 6 * sign)) & 63;
            text.push(if sign <= three.len() { char::from(SIGNS[index as usize]) } else { '=' });
        }
    }
    text
}

fn hex([r, g, b]: Color) -> String {
    format!("#{r:02x}{g:02x}{b:02x}")
}

/// Formats a coordinate without trailing zeros.
fn short(value: f32) -> String {
    let text = format!("{value:.2}");
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

impl Canvas for Svg {
    fn width_of(&self, text: &str, large: bool) -> f32 {
        text.chars().count() as f32 * if large { 10.0 } else { 8.0 }
    }

    fn rect(&mut self, at: Point, size: Point, color: Color) {
        let [x, y, width, height] = [at.0, at.1, size.0, size.1].map(short);
        let fill = hex(color);
        let _ = writeln!(
            self.0,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" fill=\"{fill}\"/>"
        );
    }

    fn line(&mut self, points: &[Point], width: f32, color: Color) {
        // Thin lines along the pixel grid are sharp at half-pixel positions.
        let shift = if width == 1.0 { 0.5 } else { 0.0 };
        let points: Vec<String> =
            points.iter().map(|p| format!("{},{}", short(p.0 + shift), short(p.1 + shift))).collect();
        // A line of one point draws a dot.
        let twice = if points.len() == 1 { format!(" {}", points[0]) } else { String::new() };
        let _ = writeln!(
            self.0,
            "<polyline points=\"{}{twice}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{}\" stroke-linejoin=\"round\" \
             stroke-linecap=\"round\"/>",
            points.join(" "),
            hex(color),
            short(width)
        );
    }

    fn discs(&mut self, centers: &[Point], radius: f32, color: Color) {
        let _ = writeln!(self.0, "<g fill=\"{}\">", hex(color));
        for center in centers {
            let [x, y, r] = [center.0, center.1, radius].map(short);
            let _ = writeln!(self.0, "<circle cx=\"{x}\" cy=\"{y}\" r=\"{r}\"/>");
        }
        self.0.push_str("</g>\n");
    }

    fn text(&mut self, at: Point, anchor: Anchor, text: &str, large: bool, color: Color) {
        if text.is_empty() {
            return;
        }
        let [x, y] = [at.0, at.1].map(short);
        let (anchor, turned) = match anchor {
            Anchor::Start => ("start", String::new()),
            Anchor::Middle => ("middle", String::new()),
            Anchor::End => ("end", String::new()),
            Anchor::Upright => ("middle", format!(" transform=\"rotate(-90 {x} {y})\"")),
        };
        let size = if large { 19 } else { 14 };
        let _ = write!(
            self.0,
            "<text x=\"{x}\" y=\"{y}\" dy=\"0.35em\" font-size=\"{size}\" text-anchor=\"{anchor}\"{turned} fill=\"{}\">",
            hex(color)
        );
        for sign in text.chars() {
            match sign {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                // XML has no control characters.
                c if c.is_control() => self.0.push(' '),
                c => self.0.push(c),
            }
        }
        self.0.push_str("</text>\n");
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn base64_is_the_standard_s() {
        let all = ["", "f", "fo", "foo", "foob", "fooba", "foobar"].map(|t| super::base64(t.as_bytes()));
        assert_eq!(all, ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"]);
    }
}
