//! Gives the shared library its name for the linker. Programs look for that at run time, so that
//! the library of another ABI can lie beside this one.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "linux") {
        // The number changes when programs must be compiled anew.
        println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libdamelo_c.so.0");
    }
}
