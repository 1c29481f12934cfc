//! The exported functions that must know who calls them, and those that are only passed through.
//!
//! Written in assembly: a compiled function can neither read its return address nor call on with
//! arguments that it does not know.
#![allow(non_snake_case, reason = "named as in nccl.h")]

use std::arch::naked_asm;
use std::ffi::{CStr, c_char, c_void};

use crate::around::{Direct, Origin, say_no_library};
use crate::comms;
use crate::exports::caller;
use crate::find;
use crate::sys::{Handle, INVALID_USAGE, Status, guarded};

/// An exported function that jumps to one with the return address as a last argument, which goes
/// into `$x86` or `$arm`: the first argument register that the function leaves free.
macro_rules! with_return_address {
    ($($name:ident, $x86:literal, $arm:literal;)*) => {
        $(
            /// See nccl.h.
            ///
            /// # Safety
            ///
            /// As in nccl.h.
            #[unsafe(naked)]
            #[cfg_attr(not(test), unsafe(no_mangle))]
            pub unsafe extern "C" fn $name() {
                #[cfg(target_arch = "x86_64")]
                naked_asm!(
                    concat!("mov ", $x86, ", qword ptr [rsp]"),
                    "jmp {next}",
                    next = sym caller::$name,
                );
                #[cfg(target_arch = "aarch64")]
                naked_asm!(
                    concat!("mov ", $arm, ", x30"),
                    "b {next}",
                    next = sym caller::$name,
                );
            }
        )*
    };
}

with_return_address! {
    ncclGroupStart, "rdi", "x0";
    ncclGroupEnd, "rdi", "x0";
    ncclGroupSimulateEnd, "rsi", "x1";
    // The id, 128 bytes by value, is on the stack on x86-64 and behind a pointer on aarch64.
    ncclCommInitRank, "rcx", "x4";
    ncclCommInitRankConfig, "r8", "x5";
    ncclCommInitAll, "rcx", "x3";
    ncclCommSplit, "r9", "x5";
}

/// As above for a function with six arguments, all registers of x86-64: the address goes on the
/// stack, behind a frame that unwinders can cross.
macro_rules! with_return_address_on_stack {
    ($($name:ident)*) => {
        $(
            /// See nccl.h.
            ///
            /// # Safety
            ///
            /// As in nccl.h.
            #[unsafe(naked)]
            #[cfg_attr(not(test), unsafe(no_mangle))]
            pub unsafe extern "C" fn $name() {
                #[cfg(target_arch = "x86_64")]
                naked_asm!(
                    ".cfi_startproc",
                    "push qword ptr [rsp]",
                    ".cfi_adjust_cfa_offset 8",
                    "call {next}",
                    "add rsp, 8",
                    ".cfi_adjust_cfa_offset -8",
                    "ret",
                    ".cfi_endproc",
                    next = sym caller::$name,
                );
                #[cfg(target_arch = "aarch64")]
                naked_asm!("mov x6, x30", "b {next}", next = sym caller::$name);
            }
        )*
    };
}

with_return_address_on_stack! { ncclCommInitRankScalable ncclCommShrink ncclCommGrow }

/// Functions of nccl.h that are not recorded. They are exported so that programs which look them up
/// by name can be given this library in the place of NCCL. Each asks which library it belongs to and
/// jumps there with all arguments untouched.
macro_rules! passed_through {
    ($($number:literal $name:ident)*) => {
        $(
            /// See nccl.h.
            ///
            /// # Safety
            ///
            /// As in nccl.h.
            #[unsafe(naked)]
            #[cfg_attr(not(test), unsafe(no_mangle))]
            pub unsafe extern "C" fn $name() {
                #[cfg(target_arch = "x86_64")]
                naked_asm!(
                    ".cfi_startproc",
                    "push rdi", "push rsi", "push rdx", "push rcx", "push r8", "push r9",
                    "sub rsp, 8",
                    ".cfi_adjust_cfa_offset 56",
                    "mov rsi, rdi",
                    "mov edi, {number}",
                    "mov rdx, qword ptr [rsp + 56]",
                    "call {real}",
                    "add rsp, 8",
                    "pop r9", "pop r8", "pop rcx", "pop rdx", "pop rsi", "pop rdi",
                    ".cfi_adjust_cfa_offset -56",
                    "jmp rax",
                    ".cfi_endproc",
                    number = const $number,
                    real = sym real,
                );
                #[cfg(target_arch = "aarch64")]
                naked_asm!(
                    "stp x29, x30, [sp, #-96]!",
                    "stp x0, x1, [sp, #16]",
                    "stp x2, x3, [sp, #32]",
                    "stp x4, x5, [sp, #48]",
                    "stp x6, x7, [sp, #64]",
                    "str x8, [sp, #80]",
                    "mov x2, x30",
                    "mov x1, x0",
                    "mov w0, #{number}",
                    "bl {real}",
                    "mov x16, x0",
                    "ldr x8, [sp, #80]",
                    "ldp x6, x7, [sp, #64]",
                    "ldp x4, x5, [sp, #48]",
                    "ldp x2, x3, [sp, #32]",
                    "ldp x0, x1, [sp, #16]",
                    "ldp x29, x30, [sp], #96",
                    "br x16",
                    number = const $number,
                    real = sym real,
                );
            }
        )*

        const PASSED: &[&CStr] = &[$(
            match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => c"",
            },
        )*];

        #[cfg(test)]
        const NUMBERS: &[usize] = &[$($number),*];
    };
}

passed_through! {
    0 ncclGetErrorString
    1 ncclGetLastError
    2 ncclGetVersion
    3 ncclGetUniqueId
    4 ncclCommGetUniqueId
    5 ncclMemAlloc
    6 ncclMemFree
    7 ncclCommGetAsyncError
    8 ncclCommCount
    9 ncclCommCuDevice
    10 ncclCommUserRank
    11 ncclCommRegister
    12 ncclCommDeregister
    13 ncclCommSuspend
    14 ncclCommResume
    15 ncclCommMemStats
    16 ncclCommWindowRegister
    17 ncclCommWindowDeregister
    18 ncclWinGetUserPtr
    19 ncclCommQueryProperties
    20 ncclDevCommCreate
    21 ncclDevCommDestroy
    22 ncclSetEncryption
    23 ncclParamBind
    24 ncclParamGetI8
    25 ncclParamGetI16
    26 ncclParamGetI32
    27 ncclParamGetI64
    28 ncclParamGetU8
    29 ncclParamGetU16
    30 ncclParamGetU32
    31 ncclParamGetU64
    32 ncclParamGetStr
    33 ncclParamGet
    34 ncclParamGetParameter
    35 ncclParamGetAllParameterKeys
    36 ncclParamDumpAll
    37 ncclResetDebugInit
}

/// Functions of the list above that return text.
const TEXTS: usize = 2;

/// Where a function that is passed through goes: its original, or one that says "invalid usage".
extern "C" fn real(number: usize, first: Handle, caller: usize) -> *const c_void {
    let found = guarded(|| {
        let name = *PASSED.get(number)?;
        // Most of these have a communicator first; any other pointer is not found.
        let library = Direct::library(comms::find(first), caller);
        let found = library.and_then(|library| library.passed(number, name));
        if found.is_none() {
            let text = name.to_str().unwrap_or_default();
            match library {
                // The recorded functions have the numbers below 38.
                Some(library) => library.say_missing(38 + number, text),
                None => say_no_library(text),
            }
        }
        found
    });
    match found.flatten() {
        Some(real) => real.cast_const(),
        None if number < TEXTS => no_text as *const c_void,
        None => no_function as *const c_void,
    }
}

extern "C" fn no_function() -> Status {
    INVALID_USAGE
}

extern "C" fn no_text() -> *const c_char {
    c"the function is missing from the NCCL that is loaded".as_ptr()
}

/// `dlsym` of the C library.
///
/// # Safety
///
/// As in dlfcn.h.
#[unsafe(naked)]
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    #[cfg(target_arch = "x86_64")]
    naked_asm!(
        "cmp byte ptr [rip + {wrapping}], 0",
        "je 2f",
        // RTLD_DEFAULT and RTLD_NEXT, 0 and -1, are the linker's own business.
        "lea rax, [rdi + 1]",
        "cmp rax, 1",
        "jbe 2f",
        "test rsi, rsi",
        "je 2f",
        "cmp byte ptr [rsi], 110",
        "jne 2f",
        "cmp byte ptr [rsi + 1], 99",
        "jne 2f",
        "cmp byte ptr [rsi + 2], 99",
        "jne 2f",
        "cmp byte ptr [rsi + 3], 108",
        "jne 2f",
        "jmp {wrapped}",
        "2:",
        "mov rax, qword ptr [rip + {known}]",
        "test rax, rax",
        "je 3f",
        "jmp rax",
        "3:",
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {real}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "jmp rax",
        wrapping = sym find::WRAPPING,
        known = sym find::REAL,
        wrapped = sym find::wrapped,
        real = sym find::real,
    );
    #[cfg(target_arch = "aarch64")]
    naked_asm!(
        "adrp x16, {wrapping}",
        "ldrb w16, [x16, #:lo12:{wrapping}]",
        "cbz w16, 2f",
        "add x16, x0, #1",
        "cmp x16, #1",
        "b.ls 2f",
        "cbz x1, 2f",
        "ldrb w16, [x1]",
        "cmp w16, #110",
        "b.ne 2f",
        "ldrb w16, [x1, #1]",
        "cmp w16, #99",
        "b.ne 2f",
        "ldrb w16, [x1, #2]",
        "cmp w16, #99",
        "b.ne 2f",
        "ldrb w16, [x1, #3]",
        "cmp w16, #108",
        "b.ne 2f",
        "b {wrapped}",
        "2:",
        "adrp x16, {known}",
        "ldr x16, [x16, #:lo12:{known}]",
        "cbz x16, 3f",
        "br x16",
        "3:",
        "stp x29, x30, [sp, #-32]!",
        "stp x0, x1, [sp, #16]",
        "bl {real}",
        "mov x16, x0",
        "ldp x0, x1, [sp, #16]",
        "ldp x29, x30, [sp], #32",
        "br x16",
        wrapping = sym find::WRAPPING,
        known = sym find::REAL,
        wrapped = sym find::wrapped,
        real = sym find::real,
    );
}

#[cfg(test)]
mod tests {
    use super::{NUMBERS, PASSED, TEXTS};
    use crate::library::MAX_PASSED;

    #[test]
    fn a_number_is_the_place_in_the_list() {
        assert!(NUMBERS.iter().copied().eq(0..PASSED.len()));
        assert!(PASSED.len() <= MAX_PASSED);
        assert!(PASSED.iter().all(|name| name.to_bytes().starts_with(b"nccl")));
    }

    #[test]
    fn the_functions_that_return_text_come_first() {
        assert_eq!(PASSED[..TEXTS], [c"ncclGetErrorString", c"ncclGetLastError"]);
    }
}
