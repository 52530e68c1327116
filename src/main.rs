//! The command `runnel`. Everything it does is in `runnel::cli`.

/// Scripts make and drop many tensors, texts and lists of the same size, which this allocator caches. The
/// library leaves the choice of allocator to the embedder.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    runnel::cli::main()
}
