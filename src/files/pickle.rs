//! Python's pickle format, protocol 2, as far as memory snapshots need it: dicts, lists, strings, integers and
//! booleans. Repeated strings are written once.

use std::collections::HashMap;

const PROTO: u8 = 0x80;
const STOP: u8 = b'.';
const MARK: u8 = b'(';
const EMPTY_DICT: u8 = b'}';
const SETITEMS: u8 = b'u';
const EMPTY_LIST: u8 = b']';
const APPENDS: u8 = b'e';
const BINUNICODE: u8 = b'X';
const BINPUT: u8 = b'q';
const BINGET: u8 = b'h';
const LONG_BINPUT: u8 = b'r';
const LONG_BINGET: u8 = b'j';
const BININT: u8 = b'J';
const LONG1: u8 = 0x8a;
const NEWTRUE: u8 = 0x88;
const NEWFALSE: u8 = 0x89;
const TUPLE2: u8 = 0x86;

/// Items per `APPENDS`; readers pass them as arguments of one call.
const BATCH: usize = 1000;

/// A pickle that is being written. Each call adds one value.
pub struct Pickle {
    bytes: Vec<u8>,
    /// Strings written so far, by their number.
    known: HashMap<String, u32>,
}

impl Pickle {
    /// The bytes of a pickle of the one value that `write` adds.
    pub fn of(write: impl FnOnce(&mut Pickle)) -> Vec<u8> {
        let mut pickle = Pickle { bytes: vec![PROTO, 2], known: HashMap::new() };
        write(&mut pickle);
        pickle.bytes.push(STOP);
        pickle.bytes
    }

    /// A dict; `entries` adds keys and values alternately.
    pub fn dict(&mut self, entries: impl FnOnce(&mut Self)) {
        self.bytes.extend([EMPTY_DICT, MARK]);
        entries(self);
        self.bytes.push(SETITEMS);
    }

    /// A list with one value per item.
    pub fn list<T>(&mut self, items: impl IntoIterator<Item = T>, mut write: impl FnMut(&mut Self, T)) {
        self.bytes.push(EMPTY_LIST);
        let mut open = 0;
        for item in items {
            if open == 0 {
                self.bytes.push(MARK);
            }
            write(self, item);
            open += 1;
            if open == BATCH {
                self.bytes.push(APPENDS);
                open = 0;
            }
        }
        if open > 0 {
            self.bytes.push(APPENDS);
        }
    }

    /// A string.
    pub fn text(&mut self, text: &str) {
        if let Some(&number) = self.known.get(text) {
            match u8::try_from(number) {
                Ok(byte) => self.bytes.extend([BINGET, byte]),
                Err(_) => {
                    self.bytes.push(LONG_BINGET);
                    self.bytes.extend(number.to_le_bytes());
                }
            }
            return;
        }
        let number = self.known.len() as u32;
        self.known.insert(text.to_string(), number);
        self.bytes.push(BINUNICODE);
        self.bytes.extend((text.len() as u32).to_le_bytes());
        self.bytes.extend(text.as_bytes());
        match u8::try_from(number) {
            Ok(byte) => self.bytes.extend([BINPUT, byte]),
            Err(_) => {
                self.bytes.push(LONG_BINPUT);
                self.bytes.extend(number.to_le_bytes());
            }
        }
    }

    /// An integer.
    pub fn number(&mut self, value: u64) {
        match i32::try_from(value) {
            Ok(small) => {
                self.bytes.push(BININT);
                self.bytes.extend(small.to_le_bytes());
            }
            Err(_) => {
                // Nine bytes keep the sign bit clear.
                self.bytes.extend([LONG1, if value >> 63 == 0 { 8 } else { 9 }]);
                self.bytes.extend(value.to_le_bytes());
                if value >> 63 == 1 {
                    self.bytes.push(0);
                }
            }
        }
    }

    /// A boolean.
    pub fn flag(&mut self, value: bool) {
        self.bytes.push(if value { NEWTRUE } else { NEWFALSE });
    }

    /// A tuple of two integers.
    pub fn pair(&mut self, first: u64, second: u64) {
        self.number(first);
        self.number(second);
        self.bytes.push(TUPLE2);
    }

    /// An entry of a dict with a string value.
    pub fn entry_text(&mut self, key: &str, value: &str) {
        self.text(key);
        self.text(value);
    }

    /// An entry of a dict with an integer value.
    pub fn entry(&mut self, key: &str, value: u64) {
        self.text(key);
        self.number(value);
    }
}
