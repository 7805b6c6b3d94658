//! A contact sheet: image-like records side by side in one PNG.

use std::fs::File;
use std::io::{BufWriter, ErrorKind};
use std::ops::Range;
use std::path::Path;

use loaderx::{AnyDataset, DType, Kind};

use crate::output::Result;
use crate::values::Elements;

/// Images on a sheet, at most.
pub(crate) const MOST: u64 = 256;

/// Pixels of a sheet, at most: fewer images are shown where they are large.
const PIXELS: u64 = 1 << 26;

/// Pixels between two images, and what they hold.
const GAP: usize = 2;
const BETWEEN: u8 = 128;

/// How the elements of an image lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Layout {
    height: usize,
    width: usize,
    channels: usize,
    /// Whether all pixels of a channel lie together.
    planar: bool,
}

impl Layout {
    /// That of an item shape; `None` where it is no image's.
    fn of(shape: &[usize]) -> Option<Layout> {
        let is_channels = |axis| [1, 3, 4].contains(&axis);
        let layout = match *shape {
            [height, width] => Layout { height, width, channels: 1, planar: false },
            [height, width, channels] if is_channels(channels) => Layout { height, width, channels, planar: false },
            [channels, height, width] if is_channels(channels) => Layout { height, width, channels, planar: true },
            _ => return None,
        };
        (layout.height > 0 && layout.width > 0).then_some(layout)
    }

    /// Where the element of a channel of a pixel lies.
    fn place(self, row: usize, column: usize, channel: usize) -> usize {
        match self.planar {
            true => (channel * self.height + row) * self.width + column,
            false => (row * self.width + column) * self.channels + channel,
        }
    }
}

/// Writes a sheet of the records, from left to right and from top to bottom, and says how many are on it.
pub(crate) fn write(store: &AnyDataset, records: Range<u64>, out: &Path) -> Result<u64> {
    let name = store.path().display();
    let layout = store.item_shape().filter(|_| store.kind() == Some(Kind::Dense)).and_then(Layout::of);
    let Some(layout) = layout else {
        let found = match (store.kind(), store.item_shape()) {
            (Some(kind), Some(shape)) => format!("{kind} records of item shape {shape:?}"),
            _ => "raw records".into(),
        };
        return Err(format!(
            "{name}: {found} are no images: a sheet is made of dense ones of shape (H, W), (H, W, C) or (C, H, W), with C \
             of 1, 3 or 4"
        )
        .into());
    };
    let dtypes = [DType::U8, DType::Bool, DType::F16, DType::BF16, DType::F32, DType::F64];
    let Some(elements) = Elements::of(store).filter(|elements| dtypes.contains(&elements.dtype)) else {
        let dtype = store.dtype().unwrap_or_default();
        return Err(
            format!("{name}: values of dtype {dtype} are no images': a sheet is made of u8, bool, or floats").into()
        );
    };
    let pixels = (layout.height + GAP) as u64 * (layout.width + GAP) as u64;
    let count = (records.end - records.start).min(PIXELS / pixels);
    if count == 0 {
        let reason = match records.is_empty() {
            true => "there is no record in that range".to_owned(),
            false => format!("an image of {} x {} pixels is too large for a sheet", layout.width, layout.height),
        };
        return Err(format!("{name}: {reason}").into());
    }
    let columns = (count as f64).sqrt().ceil() as usize;
    let rows = (count as usize).div_ceil(columns);
    let (width, height) = (columns * (layout.width + GAP) - GAP, rows * (layout.height + GAP) - GAP);
    let mut sheet = vec![BETWEEN; width * height * layout.channels];
    for (at, record) in (records.start..records.start + count).enumerate() {
        let image = image(store, record, elements, layout)?;
        let (top, left) = (at / columns * (layout.height + GAP), at % columns * (layout.width + GAP));
        let stride = layout.width * layout.channels;
        for (row, line) in image.chunks_exact(stride).enumerate() {
            let begin = ((top + row) * width + left) * layout.channels;
            sheet[begin..begin + stride].copy_from_slice(line);
        }
    }
    encode(out, width, height, layout.channels, &sheet)?;
    Ok(count)
}

/// A record as bytes, row by row, all channels of a pixel together.
fn image(store: &AnyDataset, record: u64, elements: Elements, layout: Layout) -> Result<Vec<u8>> {
    let bytes = store.get(record)?;
    let mut values = Vec::with_capacity(layout.height * layout.width * layout.channels);
    for number in elements.numbers(&bytes) {
        let value = number.as_f64();
        values.push(match elements.dtype {
            DType::U8 => value as u8,
            DType::Bool => value as u8 * 255,
            _ if (0.0..=1.0).contains(&value) => (value * 255.0).round() as u8,
            _ => {
                let reason = "a sheet takes floats from 0 to 1: scale them first";
                return Err(format!("{}: record {record} holds {value}: {reason}", store.path().display()).into());
            }
        });
    }
    if values.len() != layout.height * layout.width * layout.channels {
        return Err(format!("{}: record {record} is cut short: run `loaderx verify`", store.path().display()).into());
    }
    let places = (0..layout.height).flat_map(|row| {
        (0..layout.width)
            .flat_map(move |column| (0..layout.channels).map(move |channel| layout.place(row, column, channel)))
    });
    Ok(places.map(|place| values[place]).collect())
}

fn encode(out: &Path, width: usize, height: usize, channels: usize, pixels: &[u8]) -> Result<()> {
    let file = File::create_new(out).map_err(|e| match e.kind() {
        ErrorKind::AlreadyExists => format!("{} already exists: remove it, or choose another file", out.display()),
        _ => format!("cannot create {}: {e}", out.display()),
    })?;
    let mut encoder = png::Encoder::new(BufWriter::new(file), width as u32, height as u32);
    encoder.set_color(match channels {
        1 => png::ColorType::Grayscale,
        3 => png::ColorType::Rgb,
        _ => png::ColorType::Rgba,
    });
    encoder.set_depth(png::BitDepth::Eight);
    let written = encoder.write_header().and_then(|mut writer| {
        writer.write_image_data(pixels)?;
        writer.finish()
    });
    written.map_err(|e| {
        // Half a sheet is none; that it cannot be removed changes nothing about the reason.
        let _ = std::fs::remove_file(out);
        format!("cannot write {}: {e}", out.display()).into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shapes_of_images_are_told_apart() {
        let of = |shape: &[usize]| Layout::of(shape).map(|l| (l.height, l.width, l.channels, l.planar));
        assert_eq!(of(&[28, 20]), Some((28, 20, 1, false)));
        assert_eq!(of(&[28, 20, 3]), Some((28, 20, 3, false)));
        assert_eq!(of(&[3, 28, 20]), Some((28, 20, 3, true)));
        assert_eq!(of(&[4, 5, 1]), Some((4, 5, 1, false)));
        for shape in [&[][..], &[5], &[5, 5, 5], &[0, 5], &[1, 2, 3, 4]] {
            assert_eq!(of(shape), None, "{shape:?}");
        }
    }
}
