//! Instructions of the register machine.
//!
//! An instruction is eight bytes: a tag and up to four operands. Operands named `dst`, `a`, `b`, `src`,
//! `base` are registers of the running call; `k` is a constant; `offset` counts from the next instruction.
//! Operations on tensors need no instructions: operators and calls dispatch on the types of their operands.

/// An instruction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Op {
    // Values and variables. `take` leaves `none` in a register that is dead afterwards.
    Load {
        dst: u16,
        k: u32,
    },
    LoadInt {
        dst: u16,
        value: i32,
    },
    /// The current CUDA device.
    LoadCuda {
        dst: u16,
    },
    Move {
        take: bool,
        dst: u16,
        src: u16,
    },
    GetGlobal {
        dst: u16,
        slot: u32,
    },
    SetGlobal {
        take: bool,
        src: u16,
        slot: u32,
    },
    /// Moves a variable into a cell, in place.
    NewCell {
        reg: u16,
    },
    GetCell {
        dst: u16,
        cell: u16,
    },
    SetCell {
        take: bool,
        cell: u16,
        src: u16,
    },
    GetCapture {
        dst: u16,
        index: u16,
    },
    SetCapture {
        take: bool,
        src: u16,
        index: u16,
    },
    Closure {
        dst: u16,
        proto: u32,
    },
    /// Releases registers `from .. from + count`.
    Clear {
        from: u16,
        count: u16,
    },

    // Operators.
    Add {
        dst: u16,
        a: u16,
        b: u16,
    },
    Sub {
        dst: u16,
        a: u16,
        b: u16,
    },
    Mul {
        dst: u16,
        a: u16,
        b: u16,
    },
    Div {
        dst: u16,
        a: u16,
        b: u16,
    },
    FloorDiv {
        dst: u16,
        a: u16,
        b: u16,
    },
    Mod {
        dst: u16,
        a: u16,
        b: u16,
    },
    AddInt {
        dst: u16,
        a: u16,
        value: i16,
    },
    SubInt {
        dst: u16,
        a: u16,
        value: i16,
    },
    AddK {
        dst: u16,
        a: u16,
        k: u16,
    },
    SubK {
        dst: u16,
        a: u16,
        k: u16,
    },
    MulK {
        dst: u16,
        a: u16,
        k: u16,
    },
    DivK {
        dst: u16,
        a: u16,
        k: u16,
    },
    FloorDivK {
        dst: u16,
        a: u16,
        k: u16,
    },
    ModK {
        dst: u16,
        a: u16,
        k: u16,
    },
    /// Any other operator, by its index in `arith::BINARY`.
    Binary {
        op: u8,
        dst: u16,
        a: u16,
        b: u16,
    },
    Neg {
        dst: u16,
        a: u16,
    },
    Not {
        dst: u16,
        a: u16,
    },
    BitNot {
        dst: u16,
        a: u16,
    },

    // Jumps. `Loop` jumps backwards. `Loop` and taken jumps with a negative offset check the limits. A
    // conditional jump is taken when the condition equals `sense`.
    Jump {
        offset: i32,
    },
    Loop {
        offset: i32,
    },
    JumpIf {
        sense: bool,
        a: u16,
        offset: i32,
    },
    /// Checks the result of a comparison in a chain: it must not be a tensor.
    Chained {
        a: u16,
    },
    /// Jumps if the parameter was given.
    JumpIfSet {
        a: u16,
        offset: i32,
    },
    JumpEq {
        sense: bool,
        a: u16,
        b: u16,
        offset: i16,
    },
    JumpNe {
        sense: bool,
        a: u16,
        b: u16,
        offset: i16,
    },
    JumpLt {
        sense: bool,
        a: u16,
        b: u16,
        offset: i16,
    },
    JumpLe {
        sense: bool,
        a: u16,
        b: u16,
        offset: i16,
    },
    JumpGt {
        sense: bool,
        a: u16,
        b: u16,
        offset: i16,
    },
    JumpGe {
        sense: bool,
        a: u16,
        b: u16,
        offset: i16,
    },
    JumpEqK {
        sense: bool,
        a: u16,
        k: u16,
        offset: i16,
    },
    JumpNeK {
        sense: bool,
        a: u16,
        k: u16,
        offset: i16,
    },
    JumpLtK {
        sense: bool,
        a: u16,
        k: u16,
        offset: i16,
    },
    JumpLeK {
        sense: bool,
        a: u16,
        k: u16,
        offset: i16,
    },
    JumpGtK {
        sense: bool,
        a: u16,
        k: u16,
        offset: i16,
    },
    JumpGeK {
        sense: bool,
        a: u16,
        k: u16,
        offset: i16,
    },

    // Loops. A range loop keeps the next value, the remaining count and the step in `base`, `base + 1`, `base
    // + 2`. Any other loop keeps the sequence and the position in `base`, `base + 1`.
    /// Start, end and step are in `base`... Jumps if the range is empty; otherwise the loop starts at its
    /// `RangeNext`.
    RangeLoop {
        base: u16,
    },
    RangeNext {
        base: u16,
        dst: u16,
        offset: i16,
    },
    SequenceLoop {
        base: u16,
    },
    /// [`Op::SequenceLoop`] with indexed elements. Changes to the sequence inside the loop do not change the elements
    /// that the loop yields.
    ElementsLoop {
        base: u16,
    },
    SequenceNext {
        base: u16,
        dst: u16,
        offset: i16,
    },

    // Calls: the callee is in `base`, followed by `argc` arguments. For methods the receiver is in `base`.
    Call {
        argc: u8,
        base: u16,
        dst: u16,
    },
    /// The callee is in `callee` and is copied to `base`.
    CallLocal {
        argc: u8,
        base: u16,
        dst: u16,
        callee: u16,
    },
    /// The callee is a captured variable.
    CallCapture {
        argc: u8,
        base: u16,
        dst: u16,
        index: u16,
    },
    CallGlobal {
        argc: u8,
        base: u16,
        dst: u16,
        slot: u16,
    },
    CallNative {
        argc: u8,
        base: u16,
        dst: u16,
        k: u16,
    },
    CallMethod {
        argc: u8,
        base: u16,
        dst: u16,
        site: u16,
    },
    /// The receiver is the variable named by the site. Without a fast path it is copied to `base`.
    CallMethodOf {
        argc: u8,
        base: u16,
        dst: u16,
        site: u16,
    },
    CallShaped {
        base: u16,
        dst: u16,
        shape: u16,
    },
    Return {
        src: u16,
    },

    // Containers. Their elements are in `base`... and are moved out.
    NewList {
        dst: u16,
        base: u16,
        count: u16,
    },
    ListPush {
        list: u16,
        base: u16,
        count: u16,
    },
    ListExtend {
        list: u16,
        src: u16,
    },
    NewTuple {
        dst: u16,
        base: u16,
        count: u16,
    },
    TupleOfList {
        dst: u16,
        src: u16,
    },
    NewRecord {
        dst: u16,
        base: u16,
        shape: u16,
    },
    RecordMerge {
        dst: u16,
        a: u16,
        b: u16,
    },
    /// Start, end and step are in `base`..., with `none` for an open end.
    NewRange {
        dst: u16,
        base: u16,
    },
    Index {
        dst: u16,
        a: u16,
        b: u16,
    },
    SetIndex {
        a: u16,
        b: u16,
        src: u16,
    },
    Field {
        dst: u16,
        a: u16,
        k: u16,
    },
    /// Replaces the record in `a` by a copy with one field changed, or assigns an attribute.
    SetField {
        a: u16,
        k: u16,
        src: u16,
    },

    // Patterns: the elements go to `base`... `Fits` writes a bool to `base` and the elements after it.
    Unpack {
        src: u16,
        base: u16,
        shape: u16,
    },
    Fits {
        src: u16,
        base: u16,
        shape: u16,
    },
    /// Whether the values are equal, or `b` is a range that contains the other.
    FitsValue {
        dst: u16,
        a: u16,
        b: u16,
    },
    NoArm {
        src: u16,
    },

    // Text.
    Format {
        dst: u16,
        src: u16,
        spec: u16,
    },
    Concat {
        dst: u16,
        base: u16,
        count: u16,
    },

    // Errors and contexts.
    /// Errors raised before the matching `PopHandler` jump to the target, as a value in `dst`. `catch` is
    /// false for a cleanup handler, which also receives interrupts.
    PushHandler {
        catch: bool,
        dst: u16,
        offset: i32,
    },
    /// `flush` submits the work that the block left pending, without waiting for it, so that submission
    /// errors surface inside.
    PopHandler {
        flush: bool,
    },
    Throw {
        src: u16,
    },
    Rethrow {
        src: u16,
    },
    EnterContext {
        src: u16,
    },
    EnterDevice {
        src: u16,
    },
    ExitContext {
        count: u16,
    },
    /// Moves a tensor to a device, if it is on another one.
    Place {
        dst: u16,
        src: u16,
        device: u16,
    },
    /// Converts a nested list of numbers to a tensor of the dtype in `b`.
    Typed {
        dst: u16,
        a: u16,
        b: u16,
    },

    // Programs.
    Import {
        file: bool,
        dst: u16,
        k: u32,
    },
    Test {
        src: u16,
        k: u32,
    },
}

const _: () = assert!(std::mem::size_of::<Op>() == 8);
