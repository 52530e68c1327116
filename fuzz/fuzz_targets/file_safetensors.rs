//! Any bytes as a `.safetensors` file: arrays whose every element came from the file, or a coded error.
#![no_main]

mod file;

libfuzzer_sys::fuzz_target!(|data: &[u8]| file::read("safetensors", data));
