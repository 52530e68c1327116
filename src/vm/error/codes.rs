//! The codes of the errors of running scripts.

use crate::base::{Code, ErrorKind};

macro_rules! codes {
    ($($name:ident $id:literal $kind:ident $title:literal $page:literal $example:literal;)*) => {
        $(
            #[doc = $title]
            pub static $name: Code = Code {
                id: $id,
                kind: ErrorKind::$kind,
                title: $title,
                page: $page,
                example: $example,
            };
        )*
        /// Every code of this phase.
        pub static CODES: &[&Code] = &[$(&$name),*];
    };
}

codes! {
    OPERATOR_TYPES "E0301" Type "an operator does not take these types"
        "The operator is not defined for the types on its sides. Arithmetic takes numbers, tensors and numeric lists; strings join with `+` or `++`; lists join with `++`. Convert one side first, with `int(...)`, `float(...)` or `str(...)`."
        "\"a\" - 1";
    ARGUMENT_TYPE "E0302" Type "an argument has the wrong type"
        "The function takes another type for this parameter. The label names the parameter and what it takes. Convert the value, or pass another one."
        "\"abc\".split(3)";
    ARGUMENT_MISSING "E0303" Type "an argument is missing"
        "A parameter without a default was not given. The message shows the signature."
        "let f = [abs][0]\nf()";
    ARGUMENT_EXTRA "E0304" Type "there are too many arguments"
        "More positional arguments were given than the function has parameters for. The message shows the signature."
        "let f = [abs][0]\nf(1, 2)";
    ARGUMENT_UNKNOWN "E0305" Type "no parameter has this name"
        "An argument was given by a name that the function does not have. The help names the nearest one."
        "let f = [sorted][0]\nf([1], revers = true)";
    ARGUMENT_TWICE "E0306" Type "an argument is given twice"
        "A parameter received a value by position and another by name, or twice by name."
        "let f = |a, b = 1| a\nlet g = [f][0]\ng(1, a = 2)";
    NOT_CALLABLE "E0307" Type "a value is not a function"
        "Only functions, methods and modules' functions can be called. A name was probably rebound to a value."
        "let f = 3\nf(1)";
    NO_ATTRIBUTE "E0308" Name "a value has no such attribute"
        "The type has no attribute or method of this name. The help names the nearest one; `runnel doc TYPE` lists all."
        "\"abc\".uper()";
    NOT_ITERABLE "E0309" Type "a value cannot be iterated"
        "`for`, spreading and the functions over sequences take lists, tuples, ranges, strings, dicts, records and tensors."
        "for x in 3 { print(x) }";
    NOT_INDEXABLE "E0310" Type "a value cannot be indexed"
        "Strings, lists, tuples, dicts, ranges and tensors take `x[i]`. Records are read by name: `r.field`."
        "let x = 3\nx[0]";
    INDEX_TYPE "E0311" Type "an index has the wrong type"
        "Strings, lists and tuples are indexed by an int (negative ones count from the end) or a range."
        "[1, 2, 3][\"a\"]";
    OVERFLOW "E0312" Value "an integer result does not fit in 64 bits"
        "Ints are 64 bits wide and never wrap. Use floats for magnitudes above 9.2e18, or tensors, whose integers wrap as PyTorch's do."
        "9223372036854775807 + 1";
    DIVISION_BY_ZERO "E0313" Value "a division by the integer zero"
        "Dividing ints by zero has no value. Floats divide by zero as tensors do: `1.0 / 0.0` is `inf`."
        "1 // 0";
    SHIFT_RANGE "E0314" Value "a shift count is out of range"
        "Shift counts go from 0 to 63."
        "1 << 64";
    INDEX_RANGE "E0315" Index "an index is out of range"
        "A sequence of n elements has the indices 0 to n - 1, and -n to -1 from the end."
        "[1, 2, 3][3]";
    NO_KEY "E0316" Index "a dict has no such key"
        "`d[k]` needs an existing key. `d.get(k, default)` returns a default for a missing one; `k in d` tests for a key."
        "let d = dict()\nd[\"a\"]";
    BAD_KEY "E0317" Type "a value cannot be a dict key"
        "Keys are `none`, bools, numbers, strings, and tuples of them: values that cannot change."
        "let d = dict()\nd[[1]] = 2";
    UNPACK "E0318" Value "a value does not have the shape of the pattern"
        "The pattern on the left binds a fixed number of elements, or fields by name, and the value does not have these. `..rest` takes any further ones."
        "let (a, b) = (1, 2, 3)";
    NO_ARM "E0319" Value "no arm of the match fits"
        "The pattern or the guard of every arm rejected the value. End with `_ => ...` to take whatever is left."
        "match 3 { 1 => \"one\" }";
    UNSET "E0320" Name "a name is used before it has a value"
        "The name is defined further down, and its definition has not run yet. Move the use below the definition."
        "fn f() { later }\nf()\nlet later = 1";
    CONVERSION "E0321" Value "a string is not a number"
        "`int` and `float` read Runnel's own number literals, and ignore blanks around them."
        "int(\"twelve\")";
    FORMAT_SPEC "E0322" Value "a format does not fit the value"
        "After the colon comes a format of Python's mini-language: `[[fill]align][sign][#][0][width][,|_][.precision][type]`. Ints take `b c d o x X n` and the float types, floats take `e E f F g G n %`, strings take `s`."
        "let x = \"a\"\n\"{x:d}\"";
    NOT_ASSIGNABLE "E0323" Type "a place cannot be assigned to"
        "Tuples, strings and ranges do not change, and most attributes are read-only. Build a new value: `(..r, field = x)`, `list(t)`."
        "let t = (1, 2)\nt[0] = 3";
    NOT_CONTEXT "E0324" Type "a value is not a context"
        "`with` takes contexts: `device(1)`, `stream(s)`, `no_grad()`, and so on."
        "with 3 { print(1) }";
    BAD_VALUE "E0325" Value "an argument has a value that the function cannot use"
        "The type is right and the value is not. The message says which values are taken."
        "range(0, 10, 0)";
    NOT_SPREADABLE "E0326" Type "a value cannot be spread here"
        "`..x` in a list, tuple or call takes what can be iterated; in a record it takes a record."
        "let x = 3\n(..x, a = 1)";
    NO_TRUTH "E0327" Type "a condition has no truth value"
        "Guards and conditions take bools, numbers, strings, containers, `none`, and tensors of one element. For a larger tensor say which is meant: `(x > 0).any()` or `(x > 0).all()`."
        "let x = ones(2)\nif x > 0 { print(1) }";
    CHANGED "E0329" Value "a container was changed during iteration"
        "A `for` loop over a dict raises this error if the dict has gained or lost entries since the loop began, because the order of the remaining entries has changed. Setting the value of an existing key is allowed. `l.sort(key=f)` rejects a list that `f` has changed. Iterate over a copy: `for k in d.keys()`, `sorted(l, key=f)`."
        "let d = dict((a = 1, b = 2))\nfor k in d { d.pop(k) }";
    UNKNOWN_NAME "E0328" Name "a name is not defined"
        "Nothing of this name is in scope. The help names the nearest one."
        "";
    CONDITIONAL_ASSERT "E0901" Assert "an assertion does not hold"
        "`assert(condition, \"text\")` found its condition false."
        "assert(1 > 2, \"one is small\")";
    THROWN "E0902" Thrown "the script threw"
        "`throw` raised this error; its text is the script's own."
        "throw \"no luck\"";
    MODULE_MISSING "E0903" Io "a module cannot be read"
        "`import \"file.rnl\"` is looked up relative to the file that imports it, `import name` in Runnel's own library."
        "import \"no-such-file.rnl\" as m";
    MODULE_CYCLE "E0904" Value "modules import each other"
        "A module needs another one that is still being run because it needs the first. Move what both need into a third file."
        "";
    OPTION "E0905" Value "a script option is wrong"
        "The script was started with an option that it does not declare, or with a value whose type is not that of the option's default. `runnel FILE --help` lists what it takes."
        "";
    THROW_TYPE "E0906" Type "only strings and errors can be thrown"
        "`throw` takes a string, or an error that `catch` caught."
        "throw 3";
    FILE "E0907" Io "a file cannot be used"
        "The operating system refused to read or write the file; the message gives the reason."
        "read(\"no-such-file.txt\")";
    FILE_FORBIDDEN "E0908" Io "a script may not use this file"
        "The program that runs the script has switched file access off, or limited it to some folders. Paths are compared after `..` and links are resolved, so neither leads out of a folder."
        "";
    EXIT "E0909" Exit "the script ended itself"
        "`exit(status)` ends a script: deferred code runs, contexts are left, and the program ends with this status; `try` does not catch it. The command line reports nothing. An embedding program receives this error, with the status in `exit_status()`, and continues."
        "exit(3)";
    INPUT_OFF "E0927" Io "there is no input to read"
        "`input()` reads from the program that runs the script: the command line supplies its standard input, an embedding program only the lines of `Builder::input`."
        "";
    LEFT_OUT "E0928" Name "this build of Runnel lacks a part"
        "Runnel was built without the Cargo feature of this function. The command `runnel` has all features by default; an embedding program chooses its own."
        "";
    CALL_DEPTH "E1001" Limit "calls are nested too deeply"
        "A function calls itself without an end, or deeper than the limit (10,000 script calls)."
        "fn f(n) { 1 + f(n + 1) }\nf(0)";
    HOST_MEMORY "E1003" Limit "the script reached its limit on host memory"
        "Lists and strings grew beyond the limit on host memory. Tensors have their own limits."
        "let s = \"0123456789abcdef\"\nwhile true { s = s ++ s }";
    INTERRUPTED "E1004" Interrupted "the script was interrupted"
        "Ctrl-C, or an embedder's interrupt handle, stopped the script. `catch` does not catch this; `defer` runs, for at most 2 seconds or until the next interrupt."
        "";
    OUTPUT "E1010" Limit "the script printed too much"
        "The program that started the script limits how many bytes it may print, and the limit was reached."
        "";
    NESTING "E1005" Limit "something is nested too deeply"
        "Source text, or lists within lists, are nested deeper than Runnel can handle."
        "let a = []\nlet b = []\nfor i in 0..20000 { a = [a]; b = [b] }\na == b";
    CALLBACK_DEPTH "E1006" Limit "callbacks are nested too deeply"
        "Functions such as `sorted` and `map` call back into the script, which called them again, deeper than the stack allows (100 levels at most). Or the embedding program runs scripts on a thread with a small stack: it needs 512 KiB in addition to its own calls."
        "fn f(x) { map(f, [x]) }\nf(1)";
    FUNCTION_SIZE "E1007" Limit "a function is too large"
        "One function uses more than 60,000 variables and intermediate values at once. Split it."
        "";
}
