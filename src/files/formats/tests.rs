//! Valid files round-trip. Damaged files, with any byte changed or cut at any point, give an error with a
//! code or arrays.

use super::*;
use std::io::Cursor;

/// Everything a reader found.
#[derive(Default, Debug, PartialEq)]
pub(super) struct Found {
    arrays: Vec<(String, Head, Vec<u8>)>,
    texts: Vec<(String, Vec<String>)>,
    notes: Vec<(String, String)>,
}

impl Sink for Found {
    fn wants(&mut self, name: &str) -> bool {
        name != "unwanted"
    }

    fn array(&mut self, name: Option<&str>, head: &Head, elements: &mut dyn Elements) -> Result<()> {
        let mut bytes = vec![0; head.bytes() as usize];
        bytes.chunks_mut(48).try_for_each(|piece| elements.fill(piece))?;
        self.arrays.push((name.unwrap_or("").into(), head.clone(), bytes));
        Ok(())
    }

    fn texts(&mut self, name: &str, texts: Vec<String>) -> Result<()> {
        self.texts.push((name.into(), texts));
        Ok(())
    }

    fn note(&mut self, key: &str, text: &str) -> Result<()> {
        self.notes.push((key.into(), text.into()));
        Ok(())
    }

    fn hold(&mut self, _: usize) -> Result<()> {
        Ok(())
    }
}

fn read(name: &str, bytes: &[u8]) -> Result<Found> {
    let mut found = Found::default();
    (format(name)?.read)(&mut Cursor::new(bytes), &Options::default(), &mut found)?;
    Ok(found)
}

fn code(name: &str, bytes: &[u8]) -> &'static str {
    read(name, bytes).map(drop).expect_err("it is refused").code().id
}

/// A file with arrays of these names, dtypes, shapes and bytes; an unnamed one must be the only one.
fn write(name: &str, arrays: &[(&str, Dtype, &[usize], Vec<u8>)]) -> Result<Vec<u8>> {
    let entries = arrays.iter().map(|(name, dtype, shape, _)| Entry {
        name: name.to_string(),
        column: Column::Array { dtype: *dtype, shape: shape.to_vec() },
    });
    let contents = Contents {
        entries: entries.collect(),
        named: !arrays[0].0.is_empty(),
        notes: if name == "safetensors" { vec![("by".into(), "a \"test\"".into())] } else { vec![] },
        bytes: &mut |index| Ok(arrays[index].3.clone()),
    };
    let mut out = Cursor::new(Vec::new());
    (format(name)?.write)(&mut out, contents, &Options::default())?;
    Ok(out.into_inner())
}

fn floats(values: &[f32]) -> Vec<u8> {
    values.iter().flat_map(|v| v.to_le_bytes()).collect()
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut out, bytes).unwrap();
    out.finish().unwrap()
}

/// A small valid file of each format.
fn samples() -> Vec<(&'static str, Vec<u8>)> {
    let f = floats(&[1.5, -2.0, 0.25, 4.0, 5.0, 6.0]);
    let named: &[(&str, Dtype, &[usize], Vec<u8>)] = &[
        ("mask", Dtype::Bool, &[3], vec![1, 0, 1]),
        ("w", Dtype::F32, &[2, 3], f.clone()),
        ("none", Dtype::I64, &[0, 4], vec![]),
    ];
    let image = [("", Dtype::U8, [3usize, 2, 2].as_slice(), (0..12).collect())];
    vec![
        ("npy", write("npy", &[("", Dtype::F32, &[2, 3], f.clone())]).unwrap()),
        ("idx", write("idx", &[("", Dtype::F32, &[2, 3], f.clone())]).unwrap()),
        ("idx", gzip(&write("idx", &image).unwrap())),
        ("npz", write("npz", named).unwrap()),
        ("safetensors", write("safetensors", named).unwrap()),
        ("csv", write("csv", &[("", Dtype::F32, &[2, 3], f)]).unwrap()),
        ("csv", b"name,size,ok\n\"a,b\",1,true\nc,,false\n".to_vec()),
        ("png", write("png", &image).unwrap()),
        ("ppm", write("ppm", &image).unwrap()),
        ("ppm", b"P3 # a comment\n2 1\n255\n1 2 3\n4 5 6\n".to_vec()),
        ("raw", vec![1, 2, 3]),
    ]
}

#[test]
fn every_sample_is_sound() {
    for (name, bytes) in samples() {
        read(name, &bytes).unwrap_or_else(|e| panic!("{name}: {e:?}"));
    }
}

#[test]
fn files_that_are_cut_are_refused() {
    for (name, bytes) in samples() {
        for length in 0..bytes.len() {
            let result = read(name, &bytes[..length]);
            // Tables and raw bytes have no fixed end.
            let open = matches!(name, "csv" | "raw");
            assert!(open || result.is_err(), "{name} of {length} bytes passes");
        }
        if !matches!(name, "csv" | "raw") {
            let longer = [bytes.as_slice(), b"\0"].concat();
            assert!(read(name, &longer).is_err(), "{name} with a further byte passes");
        }
    }
}

#[test]
fn any_wrong_byte_is_an_error_or_another_array() {
    for (name, bytes) in samples() {
        for at in 0..bytes.len() {
            for value in [0, 1, b'9', b'{', 0x7f, 0x80, 0xff, bytes[at] ^ 1, bytes[at] ^ 0x80] {
                let mut damaged = bytes.clone();
                damaged[at] = value;
                if let Ok(found) = read(name, &damaged) {
                    let sound = |(_, head, data): &(String, Head, Vec<u8>)| head.bytes() == data.len() as u64;
                    assert!(found.arrays.iter().all(sound), "{name}, byte {at}");
                }
            }
        }
    }
}

#[test]
fn all_dtypes_return_as_they_were() {
    for dtype in Dtype::ALL {
        let bytes: Vec<u8> = match dtype {
            Dtype::Bool => vec![1, 0, 1, 1, 0, 0],
            _ => (0..6 * dtype.size() as u8).map(|b| b.wrapping_mul(7)).collect(),
        };
        let head = Head::new(dtype, vec![3, 2]).unwrap();
        for name in ["npy", "npz", "safetensors"] {
            let key = if name == "npy" { "" } else { "x" };
            match write(name, &[(key, dtype, &[3, 2], bytes.clone())]) {
                Ok(file) => {
                    assert_eq!(read(name, &file).unwrap().arrays, [(key.into(), head.clone(), bytes.clone())])
                }
                Err(e) => {
                    assert_eq!(e.code().id, "E0918", "{name}");
                    let lacks = if name == "safetensors" { Dtype::C128 } else { Dtype::BF16 };
                    assert_eq!(dtype, lacks, "{name}");
                }
            }
        }
    }
}

fn npy(header: &str, data: &[u8]) -> Vec<u8> {
    let size = (header.len() as u16).to_le_bytes();
    [b"\x93NUMPY\x01\x00".as_slice(), &size, header.as_bytes(), data].concat()
}

#[test]
fn npy_reads_either_byte_order_and_either_element_order() {
    let big = npy("{'descr': '>i2', 'fortran_order': False, 'shape': (2,), }\n", &[1, 2, 3, 4]);
    assert_eq!(read("npy", &big).unwrap().arrays[0].2, [2, 1, 4, 3]);
    let fortran = npy("{'shape': (2L, 3), 'fortran_order': True, \"descr\": '|u1'}", &[1, 2, 3, 4, 5, 6]);
    let (_, head, bytes) = &read("npy", &fortran).unwrap().arrays[0];
    assert_eq!((head.stored.as_slice(), head.shape().as_slice()), ([3, 2].as_slice(), [2, 3].as_slice()));
    assert_eq!(bytes, &[1, 2, 3, 4, 5, 6]);
    let bools = npy("{'descr': '|b1', 'fortran_order': False, 'shape': (2,)}", &[7, 0]);
    assert_eq!(read("npy", &bools).unwrap().arrays[0].2, [1, 0]);
    let scalar = npy("{'descr': '<f4', 'fortran_order': False, 'shape': ()}", &[0; 4]);
    assert_eq!(read("npy", &scalar).unwrap().arrays[0].1.shape(), [0usize; 0]);
}

#[test]
fn npy_headers_that_lie_are_refused() {
    let refused = |header: &str| code("npy", &npy(header, &[0; 8]));
    assert_eq!(refused("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}"), "E0917");
    assert_eq!(refused("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}"), "E0918");
    assert_eq!(refused("{'descr': '<u4', 'fortran_order': False, 'shape': (2,)}"), "E0918");
    assert_eq!(refused("{'descr': '<f4', 'fortran_order': False, 'shape': (3,)}"), "E0912");
    assert_eq!(refused("{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}"), "E0913");
    for shape in ["(99999999999999999999,)", "(4611686018427387904, 4)", "(0, 9223372036854775807, 9)"] {
        assert_eq!(
            refused(&format!("{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}}}")),
            "E0914"
        );
    }
    let deep = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({})}}", "0,".repeat(40));
    assert_eq!(refused(&deep), "E0914");
    let twice = "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (2,)}";
    assert_eq!(refused(twice), "E0915");
    for wrong in [
        "",
        "{}",
        "{'descr': '<f4'}",
        "{'descr': '<f4', 'fortran_order': 0, 'shape': (2,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-2,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': ((((2,))))}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2,)} + exec()",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), 'more': 1}",
    ] {
        assert_eq!(refused(wrong), "E0911", "{wrong}");
    }
}

#[test]
fn numpy_s_own_bytes_are_written() {
    // The header that `numpy.save` writes for `numpy.zeros((2, 3), "f4")` and `numpy.zeros(1, "i8")`.
    for (dtype, shape, header) in [
        (Dtype::F32, [2usize, 3].as_slice(), "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }"),
        (Dtype::I64, &[1], "{'descr': '<i8', 'fortran_order': False, 'shape': (1,), }"),
        (Dtype::U8, &[], "{'descr': '|u1', 'fortran_order': False, 'shape': (), }"),
    ] {
        let data = vec![0; shape.iter().product::<usize>() * dtype.size()];
        let file = write("npy", &[("", dtype, shape, data.clone())]).unwrap();
        let padded = format!("{header:<117}\n");
        assert_eq!(file, [b"\x93NUMPY\x01\x00\x76\x00".as_slice(), padded.as_bytes(), &data].concat());
    }
}

#[test]
fn the_reference_reads_our_safetensors() {
    let (_, file) = samples().into_iter().find(|(name, _)| *name == "safetensors").unwrap();
    let theirs = ::safetensors::SafeTensors::deserialize(&file).unwrap();
    let w = theirs.tensor("w").unwrap();
    assert_eq!(
        (w.dtype(), w.shape(), w.data().len()),
        (::safetensors::Dtype::F32, [2usize, 3].as_slice(), 24)
    );
    assert!(theirs.tensor("none").is_ok());
    assert_eq!(read("safetensors", &file).unwrap().notes, [("by".to_string(), "a \"test\"".to_string())]);
    // Names keep the given order, though wide elements are stored first.
    let names: Vec<String> =
        read("safetensors", &file).unwrap().arrays.into_iter().map(|(n, ..)| n).collect();
    assert_eq!(names, ["mask", "w", "none"]);
}

fn tensors(header: &str, data: &[u8]) -> Vec<u8> {
    [(header.len() as u64).to_le_bytes().as_slice(), header.as_bytes(), data].concat()
}

#[test]
fn safetensors_headers_that_lie_are_refused() {
    let part = |from: u64, to: u64| {
        format!(r#"{{"dtype":"U8","shape":[{}],"data_offsets":[{from},{to}]}}"#, to.wrapping_sub(from))
    };
    let refused = |header: String| code("safetensors", &tensors(&header, &[0; 8]));
    assert!(
        read("safetensors", &tensors(&format!(r#"{{"a":{},"b":{}}}"#, part(0, 4), part(4, 8)), &[0; 8]))
            .is_ok()
    );
    assert_eq!(refused(format!(r#"{{"a":{},"b":{}}}"#, part(0, 5), part(4, 8))), "E0916");
    assert_eq!(refused(format!(r#"{{"a":{},"b":{}}}"#, part(0, 3), part(4, 8))), "E0916");
    assert_eq!(refused(format!(r#"{{"a":{}}}"#, part(5, 3))), "E0916");
    assert_eq!(refused(r#"{"a":{"dtype":"U8","shape":[1],"data_offsets":[8,0]}}"#.into()), "E0916");
    assert_eq!(refused(format!(r#"{{"a":{}}}"#, part(0, 9))), "E0912");
    assert_eq!(refused(format!(r#"{{"a":{}}}"#, part(0, 7))), "E0913");
    assert_eq!(refused(format!(r#"{{"a":{},"a":{}}}"#, part(0, 4), part(4, 8))), "E0915");
    assert_eq!(refused(r#"{"__metadata__":{"k":"1","k":"2"}}"#.into()), "E0915");
    assert_eq!(refused(r#"{"a":{"dtype":"F8_E4M3","shape":[8],"data_offsets":[0,8]}}"#.into()), "E0918");
    assert_eq!(refused(r#"{"a":{"dtype":"F32","shape":[3],"data_offsets":[0,8]}}"#.into()), "E0916");
    let huge = r#"{"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]}}"#;
    assert_eq!(refused(huge.into()), "E0914");
    assert_eq!(refused(format!("{{\"a\":{}", "[".repeat(5000))), "E0911");
    // Messages show numbers in readable form, and quote the file's own words unchanged.
    let said = |header: &str| {
        read("safetensors", &tensors(header, &[0; 8])).expect_err("it is refused").message().to_string()
    };
    let negative = said(r#"{"a":{"dtype":"U8","shape":[-8],"data_offsets":[0,8]}}"#);
    assert!(negative.contains("integer `-8`, expected a number of 0 or more"), "{negative}");
    let foreign = said(r#"{"a":{"u64":"U8","shape":[8],"data_offsets":[0,8]}}"#);
    assert!(foreign.contains("unknown field `u64`"), "{foreign}");
    assert_eq!(code("safetensors", &u64::MAX.to_le_bytes()), "E0914");
    assert_eq!(code("safetensors", &[9, 0, 0, 0, 0, 0, 0, 0, b'{']), "E0912");
    // An unwanted array may have any dtype.
    assert!(
        read(
            "safetensors",
            &tensors(r#"{"unwanted":{"dtype":"F8_E4M3","shape":[8],"data_offsets":[0,8]}}"#, &[0; 8])
        )
        .is_ok()
    );
}

fn zip(entries: &[(&str, &[u8])], method: ::zip::CompressionMethod) -> Vec<u8> {
    use std::io::Write;
    let mut archive = ::zip::ZipWriter::new(Cursor::new(Vec::new()));
    for (name, bytes) in entries {
        let options = ::zip::write::SimpleFileOptions::default().compression_method(method);
        archive.start_file(*name, options).unwrap();
        archive.write_all(bytes).unwrap();
    }
    archive.finish().unwrap().into_inner()
}

#[test]
fn archives_are_read_deflated_and_bombs_are_not() {
    use ::zip::CompressionMethod::{Deflated, Stored};
    let header = |n: usize| format!("{{'descr': '|u1', 'fortran_order': False, 'shape': ({n},)}}");
    let small = npy(&header(1000), &[7; 1000]);
    let found = read("npz", &zip(&[("a.npy", &small)], Deflated)).unwrap();
    assert_eq!(found.arrays[0].2, [7; 1000]);
    let bomb = npy(&header(100 << 20), &vec![0; 100 << 20]);
    let packed = zip(&[("a.npy", &bomb)], Deflated);
    assert!(packed.len() < 1 << 17);
    assert_eq!(code("npz", &packed), "E0919");
    assert_eq!(code("npz", &zip(&[("a.txt", b"no")], Stored)), "E0911");
    assert_eq!(code("npz", &zip(&[("a.npy", &small[..500])], Stored)), "E0912");
    // The same name twice, in both places of the archive.
    let mut twice = zip(&[("a.npy", &small), ("b.npy", &small)], Stored);
    for at in 0..twice.len() - 5 {
        if &twice[at..at + 5] == b"b.npy" {
            twice[at] = b'a';
        }
    }
    assert_eq!(code("npz", &twice), "E0915");
    // A wrong checksum.
    let mut damaged = zip(&[("a.npy", &small)], Stored);
    let last = damaged.windows(3).rposition(|w| w == [7, 7, 7]).unwrap();
    damaged[last] = 8;
    assert_eq!(code("npz", &damaged), "E0911");
}

#[test]
fn images_are_channels_first() {
    let pixels: Vec<u8> = (0..12).collect();
    for name in ["png", "ppm"] {
        let file = write(name, &[("", Dtype::U8, &[3, 2, 2], pixels.clone())]).unwrap();
        let (_, head, bytes) = &read(name, &file).unwrap().arrays[0];
        assert_eq!((head.shape(), head.stored.as_slice()), (vec![3, 2, 2], [2, 2, 3].as_slice()));
        // The red, green and blue of the first pixel.
        assert_eq!(&bytes[..3], &[0, 4, 8]);
        let gray = write(name, &[("", Dtype::F32, &[1, 3], floats(&[0.0, 0.5, 2.0]))]).unwrap();
        assert_eq!(read(name, &gray).unwrap().arrays[0].2, [0, 128, 255]);
        assert_eq!(write(name, &[("", Dtype::I64, &[1, 1], vec![0; 8])]).unwrap_err().code().id, "E0918");
        assert_eq!(write(name, &[("", Dtype::U8, &[7, 1, 1], vec![0; 7])]).unwrap_err().code().id, "E0922");
    }
    let wide = read("ppm", b"P5 1 2 1000\n\x01\x02\x03\x04").unwrap();
    assert_eq!(wide.arrays[0].2, [2, 1, 0, 0, 4, 3, 0, 0]);
    assert_eq!(code("ppm", b"P6 99999999999 99999999999 255\n"), "E0914");
    assert_eq!(code("ppm", b"P3 9000 9000 255\n1 2 3"), "E0912");
    assert_eq!(code("ppm", b"P2 1 1 9\n10\n"), "E0911");
}

#[test]
fn an_image_whose_header_promises_too_much_is_refused() {
    let file = write("png", &[("", Dtype::U8, &[3, 2, 2], vec![0; 12])]).unwrap();
    let mut crc = Vec::from(&file[12..29]);
    crc[4..12].copy_from_slice(&[0, 1, 0, 0, 0, 1, 0, 0]);
    let mut bomb = file.clone();
    bomb[12..29].copy_from_slice(&crc);
    bomb[29..33].copy_from_slice(&checksum(&crc).to_be_bytes());
    assert_eq!(code("png", &bomb), "E0919");
}

/// CRC-32 as in PNG.
fn checksum(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, &byte| {
        (0..8).fold(crc ^ u32::from(byte), |c, _| if c & 1 == 1 { c >> 1 ^ 0xedb8_8320 } else { c >> 1 })
    })
}

#[test]
fn tables_are_numbers_or_columns() {
    let ints = read("csv", b"1,2\n3,4\n").unwrap();
    assert_eq!(ints.arrays[0].1, Head::new(Dtype::I64, vec![2, 2]).unwrap());
    let floats_ = read("csv", b"1;2\n".as_slice());
    assert_eq!(floats_.unwrap().texts.len(), 0);
    let mixed = read("csv", b"1,2.5\n,4\n").unwrap();
    assert_eq!(mixed.arrays[0].1.dtype, Dtype::F32);
    assert_eq!(mixed.arrays[0].2[8..12], f32::NAN.to_le_bytes());
    let named = read("csv", b"name,size,ok\n\"a,b\",1,true\nc,,false\n").unwrap();
    assert_eq!(named.texts, [("name".to_string(), vec!["a,b".to_string(), "c".to_string()])]);
    assert_eq!(named.arrays[0].1, Head::new(Dtype::F32, vec![2]).unwrap());
    assert_eq!((named.arrays[1].1.dtype, named.arrays[1].2.as_slice()), (Dtype::Bool, [1, 0].as_slice()));
    assert_eq!(code("csv", b""), "E0911");
    assert_eq!(code("csv", b"1,2\n3\n"), "E0923");
    assert_eq!(code("csv", b"1,2\n3,x\n"), "E0923");
    assert_eq!(code("csv", b"a,a\n3,4\n"), "E0915");
    assert_eq!(code("csv", &vec![b','; 5 << 20]), "E0914");
}

#[test]
fn quotes_that_never_end_are_refused_with_their_line() {
    let refused = |text: &str| {
        let e = read("csv", text.as_bytes()).expect_err(text);
        (e.code().id, e.message().to_string())
    };
    for (text, line) in [
        ("\"", 1),
        ("a,b\n1,\"x\n2,3\n", 2),
        ("a,b\n\"1\n\n\",\"x\"\"\n2,3\n", 4),
        ("a\r\n\"\"\"", 2),
        ("\u{feff}\"a", 1),
        ("\u{feff}a,b\n1,\"", 2),
    ] {
        let (code, message) = refused(text);
        assert!(code == "E0923" && message.contains(&format!("line {line}")), "{text:?}: {message}");
    }
    for fine in
        ["\"a\"", "\"\"", "a\n\"b\"\"\"", "a\nb\"c\n", "a\n\"b\" \"c\n", "\u{feff}\"a\"\n1", "a\n\"\n\"\n"]
    {
        read("csv", fine.as_bytes()).unwrap_or_else(|e| panic!("{fine:?}: {e:?}"));
    }
}

#[test]
fn wide_and_interlaced_images_are_read() {
    use ::png::{BitDepth, ColorType, Encoder};
    let mut file = Vec::new();
    let mut encoder = Encoder::new(&mut file, 2, 2);
    encoder.set_color(ColorType::Grayscale);
    encoder.set_depth(BitDepth::Sixteen);
    encoder.write_header().unwrap().write_image_data(&[0, 1, 1, 0, 0, 3, 255, 255]).unwrap();
    let (_, head, bytes) = &read("png", &file).unwrap().arrays[0];
    assert_eq!((head.dtype, head.shape()), (Dtype::I32, vec![1, 2, 2]));
    let levels: Vec<u8> = [1i32, 256, 3, 65535].iter().flat_map(|v| v.to_ne_bytes()).collect();
    assert_eq!(bytes, &levels);
    // One pixel, marked as interlaced: a single pass contains it.
    let mut file = write("png", &[("", Dtype::U8, &[1, 1], vec![9])]).unwrap();
    file[28] = 1;
    let crc = checksum(&file[12..29]);
    file[29..33].copy_from_slice(&crc.to_be_bytes());
    assert_eq!(read("png", &file).unwrap().arrays[0].2, [9]);
}

#[test]
fn numbers_of_tables_return_as_they_were() {
    let values = [0.1f32, 1.0, -3.5e-12, f32::MAX, f32::MIN_POSITIVE, f32::INFINITY];
    let file = write("csv", &[("", Dtype::F32, &[2, 3], floats(&values))]).unwrap();
    assert_eq!(read("csv", &file).unwrap().arrays[0].2, floats(&values));
    let whole = write("csv", &[("", Dtype::F32, &[2], floats(&[1.0, 2.0]))]).unwrap();
    assert_eq!(read("csv", &whole).unwrap().arrays[0].1.dtype, Dtype::F32);
    let columns = write("csv", &[("a", Dtype::I8, &[2], vec![255, 1]), ("b", Dtype::Bool, &[2], vec![1, 0])]);
    assert_eq!(columns.unwrap(), b"a,b\n-1,true\n1,false\n");
}

proptest::proptest! {
    #[test]
    fn any_bytes_are_refused_or_read(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
        for format in FORMATS {
            let _ = read(format.name, &bytes);
        }
        let _ = read("npy", &npy(&String::from_utf8_lossy(&bytes), &[0; 4]));
        let _ = read("safetensors", &tensors(&String::from_utf8_lossy(&bytes), &[0; 4]));
    }
}
