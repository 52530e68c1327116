//! The command `runnel`. Everything it does is in `runnel::cli`.

/// Scripts make and drop tensors, texts and lists of one size by the dozen, which this allocator keeps at hand. The
/// library leaves the choice to the program that embeds it.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    runnel::cli::main()
}
