//! Gives the shared library its name for the linker, which has the version of the binary interface.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    // GABION_ABI_VERSION, which a test compares.
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "linux") {
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libgabion.so.1");
    }
}
