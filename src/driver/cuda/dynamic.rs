//! NVIDIA's libraries above the driver: how they are found, and how their functions are bound.
//!
//! Libraries of CUDA 12 and 13 both work. A CUDA 13 library needs a CUDA 13 driver; within a major version
//! every library works with every driver. Source: CUDA Compatibility, minor version compatibility.
//!
//! The search covers the system's library path, then the toolkit's folders, then the packages of the active
//! Python environment. Each place yields the newest library that the driver supports.

#[cfg(feature = "dist")]
use super::nccl;
use super::{blas, error, fft, nvrtc, probe};
use crate::base::{Error, Result};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// A library's file for one major version of CUDA.
struct File {
    cuda: u32,
    unix: &'static str,
    windows: &'static str,
}

impl File {
    fn name(&self) -> &'static str {
        if cfg!(windows) { self.windows } else { self.unix }
    }
}

/// A library that does not come with the driver.
pub(super) struct Toolkit {
    pub name: &'static str,
    /// One of its functions, to check the file.
    function: &'static CStr,
    /// Newest first.
    files: &'static [File],
    /// Installation instructions, for error messages.
    install: &'static str,
    /// The consequences if it is missing.
    without: &'static str,
    found: OnceLock<Result<Found>>,
}

/// An open library; it stays open for the life of the process.
pub(super) struct Found {
    library: libloading::Library,
    path: PathBuf,
}

pub(super) static NVRTC: Toolkit = Toolkit::new(
    "NVRTC",
    c"nvrtcVersion",
    &[
        File { cuda: 13, unix: "libnvrtc.so.13", windows: "nvrtc64_130_0.dll" },
        File { cuda: 12, unix: "libnvrtc.so.12", windows: "nvrtc64_120_0.dll" },
    ],
    "the CUDA toolkit, or the package `nvidia-cuda-nvrtc` (`nvidia-cuda-nvrtc-cu12` for CUDA 12)",
    "the kernels that ship with Runnel do all work, some of it slower",
);

pub(super) static CUBLAS: Toolkit = Toolkit::new(
    "cuBLAS",
    c"cublasCreate_v2",
    &[
        File { cuda: 13, unix: "libcublas.so.13", windows: "cublas64_13.dll" },
        File { cuda: 12, unix: "libcublas.so.12", windows: "cublas64_12.dll" },
    ],
    "the CUDA toolkit, or the package `nvidia-cublas` (`nvidia-cublas-cu12` for CUDA 12)",
    "matrix products are slower",
);

/// The version in cuFFT's file name is one below the toolkit's.
pub(super) static CUFFT: Toolkit = Toolkit::new(
    "cuFFT",
    c"cufftCreate",
    &[
        File { cuda: 13, unix: "libcufft.so.12", windows: "cufft64_12.dll" },
        File { cuda: 12, unix: "libcufft.so.11", windows: "cufft64_11.dll" },
    ],
    "the CUDA toolkit, or the package `nvidia-cufft` (`nvidia-cufft-cu12` for CUDA 12)",
    "Fourier transforms are slower",
);

/// NCCL uses one file name for all versions of CUDA.
#[cfg(feature = "dist")]
pub(super) static NCCL: Toolkit = Toolkit::new(
    "NCCL",
    c"ncclGetVersion",
    &[File { cuda: 12, unix: "libnccl.so.2", windows: "nccl.dll" }],
    "`libnccl2`, or the package `nvidia-nccl-cu13` (`nvidia-nccl-cu12` for CUDA 12)",
    "groups of several processes fail",
);

impl Toolkit {
    const fn new(
        name: &'static str,
        function: &'static CStr,
        files: &'static [File],
        install: &'static str,
        without: &'static str,
    ) -> Toolkit {
        Toolkit { name, function, files, install, without, found: OnceLock::new() }
    }

    /// Opens the library. The result is cached.
    pub fn find(&'static self) -> Result<&'static Found> {
        self.found.get_or_init(|| self.search(&places())).as_ref().map_err(Error::clone)
    }

    /// Opens this file, unless the library is open.
    pub fn open_file(&self, path: &Path) {
        let missing = || error::no_library(self.name, &[], self.install);
        self.found.get_or_init(|| self.open(path.to_path_buf()).ok_or_else(missing));
    }

    fn search(&self, places: &[PathBuf]) -> Result<Found> {
        // Kernels can be compiled without a driver.
        let newest = probe::driver().map_or(u32::MAX, |(_, version)| probe::pair(version).0);
        let files: Vec<&str> = self.files.iter().filter(|f| f.cuda <= newest).map(File::name).collect();
        let mut paths = places.iter().flat_map(|place| files.iter().map(|file| place.join(file)));
        let found = paths.find_map(|path| self.open(path));
        found.ok_or_else(|| error::no_library(self.name, &files, self.install))
    }

    /// Opens a file if it is this library.
    fn open(&self, path: PathBuf) -> Option<Found> {
        // SAFETY: opening one of NVIDIA's libraries runs its initialisers, as in any CUDA program.
        let library = unsafe { libloading::Library::new(&path) }.ok()?;
        // SAFETY: the address has any type, since it is only checked to exist.
        let address = unsafe { library.get::<*const c_void>(self.function.to_bytes_with_nul()) };
        let address = address.ok().map(|address| *address)?;
        Some(Found { path: file_of(address).unwrap_or(path), library })
    }
}

impl Found {
    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Looks up a function.
    ///
    /// # Safety
    /// `T` is the type of a pointer to that function.
    pub unsafe fn function<T: Copy>(&self, name: &'static CStr) -> Result<T> {
        // SAFETY: guaranteed by the caller.
        let found = unsafe { self.library.get::<T>(name.to_bytes_with_nul()) };
        found.map(|function| *function).map_err(|_| error::incomplete_library(&self.path, name))
    }
}

/// The file that contains a loaded function.
#[cfg(unix)]
fn file_of(address: *const c_void) -> Option<PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    // SAFETY: all fields are pointers, which may be null.
    let mut info: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: the call compares the address and fills in the fields; the name lives as long as the library.
    unsafe {
        if libc::dladdr(address, &mut info) == 0 || info.dli_fname.is_null() {
            return None;
        }
        Some(PathBuf::from(std::ffi::OsStr::from_bytes(CStr::from_ptr(info.dli_fname).to_bytes())))
    }
}

#[cfg(not(unix))]
fn file_of(_: *const c_void) -> Option<PathBuf> {
    None
}

/// Declares `Api`, the functions of a library that Runnel calls, and `Api::get`, which binds them on first
/// use. Types are those of the library's header.
macro_rules! api {
    ($toolkit:path: $($field:ident = $symbol:literal($($arg:ty),* $(,)?) -> $result:ty;)*) => {
        struct Api {
            $($field: unsafe extern "C" fn($($arg),*) -> $result,)*
        }

        impl Api {
            fn get() -> crate::base::Result<&'static Api> {
                static API: std::sync::OnceLock<crate::base::Result<Api>> = std::sync::OnceLock::new();
                let bind = || {
                    let found = $toolkit.find()?;
                    // SAFETY: the type is that of the function in the library's header, which is the same in
                    // all versions that are opened.
                    Ok(Api { $($field: unsafe { found.function($symbol) }?,)* })
                };
                API.get_or_init(bind).as_ref().map_err(crate::base::Error::clone)
            }
        }
    };
}
pub(super) use api;

/// The places to search. The empty path comes first: it leaves the search to the system.
fn places() -> Vec<PathBuf> {
    let variables = |names: &[&str]| -> Vec<PathBuf> {
        names.iter().filter_map(std::env::var_os).filter(|v| !v.is_empty()).map(PathBuf::from).collect()
    };
    let mut roots = variables(&["CUDA_HOME", "CUDA_PATH"]);
    roots.extend(
        ["/usr/local/cuda", "/usr/local/cuda-13", "/usr/local/cuda-12", "/opt/cuda"].map(PathBuf::from),
    );
    let inside = ["lib64", "lib", "bin", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"];
    let mut places = vec![PathBuf::new()];
    places.extend(roots.iter().flat_map(|root| inside.map(|folder| root.join(folder))));
    for environment in variables(&["VIRTUAL_ENV", "CONDA_PREFIX"]) {
        places.extend(python_packages(&environment));
    }
    places
}

/// The library folders of NVIDIA's packages in a Python environment:
/// `lib/python3.12/site-packages/nvidia/cublas/lib`.
fn python_packages(environment: &Path) -> Vec<PathBuf> {
    let inside = |folder: &Path| -> Vec<PathBuf> {
        let mut found: Vec<PathBuf> =
            std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
        found.sort();
        found
    };
    let lib = environment.join("lib");
    let packages = inside(&lib).into_iter().flat_map(|python| inside(&python.join("site-packages/nvidia")));
    let mut folders: Vec<PathBuf> =
        packages.map(|package| package.join("lib")).filter(|f| f.is_dir()).collect();
    folders.push(lib);
    folders
}

/// A library, as `runnel devices` lists it.
pub struct LibraryInfo {
    /// `cuBLAS`
    pub name: &'static str,
    /// Its version and file, or why it cannot be used.
    pub found: Result<(String, PathBuf)>,
    /// The consequences if it is missing.
    pub without: &'static str,
}

/// Finds all libraries that CUDA devices use, and binds their functions.
pub fn libraries() -> Vec<LibraryInfo> {
    type Row = (&'static Toolkit, fn() -> Result<String>);
    let rows: &[Row] = &[
        (&NVRTC, nvrtc::version),
        (&CUBLAS, blas::version),
        (&CUFFT, fft::version),
        #[cfg(feature = "dist")]
        (&NCCL, nccl::version),
    ];
    let look = |&(toolkit, version): &Row| {
        let found = version().and_then(|version| Ok((version, toolkit.find()?.path.clone())));
        LibraryInfo { name: toolkit.name, found, without: toolkit.without }
    };
    rows.iter().map(look).collect()
}

/// Reads the three parts of a library's version. `get` is its `GetProperty`, which returns 0 on success.
pub(super) fn version_of(get: unsafe extern "C" fn(c_int, *mut c_int) -> c_int) -> Option<String> {
    let mut parts = [0; 3];
    for (which, part) in parts.iter_mut().enumerate() {
        // SAFETY: the call writes one integer, for one of the three values of `libraryPropertyType`.
        if unsafe { get(which as c_int, part) } != 0 {
            return None;
        }
    }
    Some(parts.map(|part| part.to_string()).join("."))
}

/// Copies a static string of a library.
///
/// # Safety
/// The pointer is null or points to a string that ends with a zero byte.
pub(super) unsafe fn text(words: *const c_char) -> String {
    if words.is_null() {
        return "unknown error".into();
    }
    // SAFETY: guaranteed by the caller.
    unsafe { CStr::from_ptr(words) }.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_of_a_python_environment_are_looked_into() {
        let environment = tempfile::tempdir().unwrap();
        let packages = environment.path().join("lib/python3.12/site-packages/nvidia");
        for package in ["cublas", "cuda_nvrtc"] {
            std::fs::create_dir_all(packages.join(package).join("lib")).unwrap();
        }
        std::fs::create_dir_all(packages.join("empty")).unwrap();
        let lib = environment.path().join("lib");
        let expected = [packages.join("cublas/lib"), packages.join("cuda_nvrtc/lib"), lib];
        assert_eq!(python_packages(environment.path()), expected);
        assert_eq!(python_packages(&packages.join("none")), [packages.join("none/lib")]);
    }

    #[test]
    fn files_that_are_not_the_library_are_skipped() {
        let folder = tempfile::tempdir().unwrap();
        for file in NVRTC.files {
            std::fs::write(folder.path().join(file.name()), "no library").unwrap();
        }
        let error = NVRTC.search(&[folder.path().into()]).err().unwrap();
        assert_eq!(error.code().id, "E0813");
        let text = error.message();
        assert!(text.contains("NVRTC") && text.contains(NVRTC.files[1].name()), "{text}");
    }

    /// Binds every function of the libraries on this machine.
    #[test]
    fn every_library_loads_or_is_named_in_the_error() {
        for library in libraries() {
            match library.found {
                Ok((version, file)) => {
                    assert!(version.contains('.') && file.exists(), "{version} {}", file.display());
                    println!("{} {version} {}", library.name, file.display());
                }
                Err(error) => {
                    assert_eq!(error.code().id, "E0813");
                    assert!(error.message().contains(library.name), "{error}");
                }
            }
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_missing_function_error_names_the_library_file() {
        static C: Toolkit =
            Toolkit::new("C", c"abs", &[File { cuda: 12, unix: "libc.so.6", windows: "" }], "", "");
        let found = C.find().unwrap();
        assert!(found.path.is_absolute() && found.path.ends_with("libc.so.6"), "{:?}", found.path);
        // SAFETY: the type is that of `abs`.
        let abs = unsafe { found.function::<unsafe extern "C" fn(c_int) -> c_int>(c"abs") }.unwrap();
        // SAFETY: the call accepts every number except the lowest.
        assert_eq!(unsafe { abs(-3) }, 3);
        // SAFETY: the function is not called.
        let error = unsafe { found.function::<usize>(c"cublasCreate_v2") }.unwrap_err();
        assert_eq!(error.code().id, "E0813");
        assert!(error.message().contains("cublasCreate_v2") && error.message().contains("libc.so.6"));
    }
}
