#![no_main]
libfuzzer_sys::fuzz_target!(|data: &[u8]| loaderx_fuzz::npz(data));
