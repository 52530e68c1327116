//! The command `runnel`. Everything it does is in `runnel::cli`.

fn main() -> std::process::ExitCode {
    runnel::cli::main()
}
