//! Instructions of the register machine.
//!
//! An instruction is eight bytes: a tag and up to four operands. Operands named `dst`, `a`, `b`,
//! `src`, `base` are registers of the running call; `k` is a constant; `offset` counts from the
//! next instruction. Operations on tensors need no instruction: operators and calls reach them by
//! their operands' types.

/// An instruction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Op {
    // Values and variables. `take` leaves `none` behind in a register that is dead afterwards.
    Load {
        dst: u16,
        k: u32,
    },
    LoadInt {
        dst: u16,
        value: i32,
    },
    /// The CUDA device selected last.
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
    /// Turns a variable into a captured one, in place.
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
    /// Any other operator, by its number in `arith::BINARY`.
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

    // Jumps. `Loop` goes backwards; it, and taken jumps with a negative offset, look at the
    // limits. `sense` is the truth that jumps.
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
    /// Jumps when a parameter was given.
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

    // Loops. A range loop keeps the next value, the remaining count and the step in `base`,
    // `base + 1`, `base + 2`; any other the sequence and the position in `base`, `base + 1`.
    /// Start, end, step stand in `base`...; jumps when the range is empty... the loop begins at its `RangeNext`.
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
    /// The same for a sequence whose elements are numbered: what changes it in the loop changes no element.
    ElementsLoop {
        base: u16,
    },
    SequenceNext {
        base: u16,
        dst: u16,
        offset: i16,
    },

    // Calls: the callee stands in `base`, `argc` arguments after it. For methods the receiver
    // stands in `base`.
    Call {
        argc: u8,
        base: u16,
        dst: u16,
    },
    /// The callee stands in `callee`, and is copied to `base`.
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
    /// The receiver is the variable that the site tells; without a plain case it is copied to `base`.
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

    // Containers; their elements stand in `base`... and are taken.
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
    /// Start, end and step, or `none` for an open end, stand in `base`...
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
    /// Changes the record in `a` into one with another field value, or assigns an attribute.
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
    /// Equal, or contained when `b` is a range.
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
    /// Errors until the matching `PopHandler` go to the target, as a value in `dst`.
    /// `catch` is false for a cleanup, which also sees interrupts.
    PushHandler {
        catch: bool,
        dst: u16,
        offset: i32,
    },
    /// `flush` waits for nothing and submits what the block left pending, so that its errors
    /// surface inside.
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
    /// Moves a tensor to a device, if it is elsewhere.
    Place {
        dst: u16,
        src: u16,
        device: u16,
    },
    /// Makes a nested list of numbers a tensor of the dtype in `b`.
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
