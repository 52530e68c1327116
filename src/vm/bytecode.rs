//! Instructions of the register machine.
//!
//! An instruction is eight bytes: a tag and up to four operands. Operands named `dst`, `a`, `b`, `src`,
//! `base` are registers of the running call; `k` is a constant; `offset` counts from the next instruction.
//! Operations on tensors need no instructions: operators and calls dispatch on the types of their operands.

use super::function::Shapes;

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

/// The operand of a jump that holds its offset.
pub enum Offset<'o> {
    Short(&'o mut i16),
    Long(&'o mut i32),
}

impl Op {
    /// The offset of a jump.
    pub fn offset(mut self) -> Option<i32> {
        Some(match self.offset_mut()? {
            Offset::Long(offset) => *offset,
            Offset::Short(offset) => i32::from(*offset),
        })
    }

    /// The operand with the offset of a jump.
    pub fn offset_mut(&mut self) -> Option<Offset<'_>> {
        match self {
            Op::Jump { offset }
            | Op::Loop { offset }
            | Op::JumpIf { offset, .. }
            | Op::JumpIfSet { offset, .. }
            | Op::PushHandler { offset, .. } => Some(Offset::Long(offset)),
            Op::JumpEq { offset, .. }
            | Op::JumpNe { offset, .. }
            | Op::JumpLt { offset, .. }
            | Op::JumpLe { offset, .. }
            | Op::JumpGt { offset, .. }
            | Op::JumpGe { offset, .. }
            | Op::JumpEqK { offset, .. }
            | Op::JumpNeK { offset, .. }
            | Op::JumpLtK { offset, .. }
            | Op::JumpLeK { offset, .. }
            | Op::JumpGtK { offset, .. }
            | Op::JumpGeK { offset, .. }
            | Op::RangeNext { offset, .. }
            | Op::SequenceNext { offset, .. } => Some(Offset::Short(offset)),
            _ => None,
        }
    }

    /// Calls `note` with each register that the instruction names as an operand. The elements of a call, a container or
    /// a loop are adjacent temporaries and are not among them.
    pub fn reads(&self, shapes: &Shapes, note: &mut impl FnMut(u16)) {
        match *self {
            Op::Load { .. }
            | Op::LoadInt { .. }
            | Op::LoadCuda { .. }
            | Op::GetGlobal { .. }
            | Op::GetCapture { .. }
            | Op::Closure { .. }
            | Op::Clear { .. }
            | Op::Jump { .. }
            | Op::Loop { .. }
            | Op::RangeLoop { .. }
            | Op::RangeNext { .. }
            | Op::SequenceLoop { .. }
            | Op::ElementsLoop { .. }
            | Op::SequenceNext { .. }
            | Op::Call { .. }
            | Op::CallCapture { .. }
            | Op::CallGlobal { .. }
            | Op::CallNative { .. }
            | Op::CallMethod { .. }
            | Op::CallShaped { .. }
            | Op::NewList { .. }
            | Op::NewTuple { .. }
            | Op::NewRecord { .. }
            | Op::NewRange { .. }
            | Op::Concat { .. }
            | Op::PushHandler { .. }
            | Op::PopHandler { .. }
            | Op::ExitContext { .. }
            | Op::Import { .. } => {}
            Op::Move { src, .. }
            | Op::SetGlobal { src, .. }
            | Op::SetCapture { src, .. }
            | Op::Return { src }
            | Op::TupleOfList { src, .. }
            | Op::Unpack { src, .. }
            | Op::Fits { src, .. }
            | Op::NoArm { src }
            | Op::Throw { src }
            | Op::Rethrow { src }
            | Op::EnterContext { src }
            | Op::EnterDevice { src }
            | Op::Test { src, .. } => note(src),
            Op::NewCell { reg } => note(reg),
            Op::GetCell { cell, .. } => note(cell),
            Op::ListPush { list, .. } => note(list),
            Op::CallLocal { callee, .. } => note(callee),
            Op::AddInt { a, .. }
            | Op::SubInt { a, .. }
            | Op::AddK { a, .. }
            | Op::SubK { a, .. }
            | Op::MulK { a, .. }
            | Op::DivK { a, .. }
            | Op::FloorDivK { a, .. }
            | Op::ModK { a, .. }
            | Op::Neg { a, .. }
            | Op::Not { a, .. }
            | Op::BitNot { a, .. }
            | Op::JumpIf { a, .. }
            | Op::Chained { a }
            | Op::JumpIfSet { a, .. }
            | Op::JumpEqK { a, .. }
            | Op::JumpNeK { a, .. }
            | Op::JumpLtK { a, .. }
            | Op::JumpLeK { a, .. }
            | Op::JumpGtK { a, .. }
            | Op::JumpGeK { a, .. }
            | Op::Field { a, .. } => note(a),
            Op::Add { a, b, .. }
            | Op::Sub { a, b, .. }
            | Op::Mul { a, b, .. }
            | Op::Div { a, b, .. }
            | Op::FloorDiv { a, b, .. }
            | Op::Mod { a, b, .. }
            | Op::Binary { a, b, .. }
            | Op::JumpEq { a, b, .. }
            | Op::JumpNe { a, b, .. }
            | Op::JumpLt { a, b, .. }
            | Op::JumpLe { a, b, .. }
            | Op::JumpGt { a, b, .. }
            | Op::JumpGe { a, b, .. }
            | Op::RecordMerge { a, b, .. }
            | Op::Index { a, b, .. }
            | Op::FitsValue { a, b, .. }
            | Op::Typed { a, b, .. } => [a, b].into_iter().for_each(note),
            Op::SetIndex { a, b, src } => [a, b, src].into_iter().for_each(note),
            Op::SetCell { cell: a, src: b, .. }
            | Op::SetField { a, src: b, .. }
            | Op::ListExtend { list: a, src: b }
            | Op::Format { src: a, spec: b, .. }
            | Op::Place { src: a, device: b, .. } => [a, b].into_iter().for_each(note),
            Op::CallMethodOf { site, .. } => {
                let site = &shapes.methods[usize::from(site)];
                site.receiver.iter().chain(&*site.args).copied().for_each(note);
            }
        }
    }

    /// The register of the result.
    pub fn written(&self) -> Option<u16> {
        match *self {
            Op::Load { dst, .. }
            | Op::LoadInt { dst, .. }
            | Op::LoadCuda { dst }
            | Op::Move { dst, .. }
            | Op::GetGlobal { dst, .. }
            | Op::GetCell { dst, .. }
            | Op::GetCapture { dst, .. }
            | Op::Closure { dst, .. }
            | Op::Add { dst, .. }
            | Op::Sub { dst, .. }
            | Op::Mul { dst, .. }
            | Op::Div { dst, .. }
            | Op::FloorDiv { dst, .. }
            | Op::Mod { dst, .. }
            | Op::AddInt { dst, .. }
            | Op::SubInt { dst, .. }
            | Op::AddK { dst, .. }
            | Op::SubK { dst, .. }
            | Op::MulK { dst, .. }
            | Op::DivK { dst, .. }
            | Op::FloorDivK { dst, .. }
            | Op::ModK { dst, .. }
            | Op::Binary { dst, .. }
            | Op::Neg { dst, .. }
            | Op::Not { dst, .. }
            | Op::BitNot { dst, .. }
            | Op::RangeNext { dst, .. }
            | Op::SequenceNext { dst, .. }
            | Op::Call { dst, .. }
            | Op::CallLocal { dst, .. }
            | Op::CallCapture { dst, .. }
            | Op::CallGlobal { dst, .. }
            | Op::CallNative { dst, .. }
            | Op::CallMethod { dst, .. }
            | Op::CallMethodOf { dst, .. }
            | Op::CallShaped { dst, .. }
            | Op::NewList { dst, .. }
            | Op::NewTuple { dst, .. }
            | Op::TupleOfList { dst, .. }
            | Op::NewRecord { dst, .. }
            | Op::RecordMerge { dst, .. }
            | Op::NewRange { dst, .. }
            | Op::Index { dst, .. }
            | Op::Field { dst, .. }
            | Op::FitsValue { dst, .. }
            | Op::Format { dst, .. }
            | Op::Concat { dst, .. }
            | Op::PushHandler { dst, .. }
            | Op::Place { dst, .. }
            | Op::Typed { dst, .. }
            | Op::Import { dst, .. } => Some(dst),
            _ => None,
        }
    }
}
