//! Generates the parser from the only grammar, `grammar/runnel.lalrpop`.

fn main() {
    println!("cargo:rerun-if-changed=grammar");
    if let Err(error) = lalrpop::Configuration::new()
        .set_in_dir("grammar")
        .set_out_dir(std::env::var_os("OUT_DIR").unwrap_or_default())
        .emit_rerun_directives(true)
        .process()
    {
        panic!("the grammar does not build: {error}");
    }
}
