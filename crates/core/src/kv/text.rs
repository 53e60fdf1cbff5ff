//! Bytes in JSON: as text if they are UTF-8, and else as an object with their hexadecimal digits.

use bytes::Bytes;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The form of bytes in JSON.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Text {
    Utf8(String),
    Hex { hex: String },
}

pub(super) fn serialize<S: Serializer>(bytes: &Bytes, serializer: S) -> Result<S::Ok, S::Error> {
    match std::str::from_utf8(bytes) {
        Ok(text) => serializer.serialize_str(text),
        Err(_) => {
            let hex = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            Text::Hex { hex }.serialize(serializer)
        }
    }
}

pub(super) fn deserialize<'a, D: Deserializer<'a>>(deserializer: D) -> Result<Bytes, D::Error> {
    match Text::deserialize(deserializer)? {
        Text::Utf8(text) => Ok(text.into()),
        Text::Hex { hex } => {
            let digits = hex.as_bytes().chunks(2).map(std::str::from_utf8);
            let byte = |digits: Result<&str, _>| {
                u8::from_str_radix(digits.unwrap_or_default(), 16).map_err(|error| {
                    D::Error::custom(format!("{hex:?} is no hexadecimal: {error}"))
                })
            };
            digits.map(byte).collect::<Result<Vec<u8>, _>>().map(Bytes::from)
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::kv::KeyValue;

    #[test]
    fn bytes_of_any_kind_are_read_back() {
        for (value, text) in [
            (&b"{\"a\": 1}"[..], r#""value":"{\"a\": 1}""#),
            (&[0xff, 0, 7][..], r#""value":{"hex":"ff0007"}"#),
        ] {
            let kv = KeyValue { value: value.to_vec().into(), ..KeyValue::default() };
            let written = serde_json::to_string(&kv).unwrap();
            assert!(written.contains(text), "{written}");
            assert_eq!(serde_json::from_str::<KeyValue>(&written).unwrap(), kv);
        }
        for wrong in [r#"{"hex":"zz"}"#, r#"{"hex":"ä"}"#, "7"] {
            let kv = format!(
                r#"{{"key":{wrong},"create_revision":0,"mod_revision":0,"version":0,"lease":0}}"#
            );
            let read = serde_json::from_str::<KeyValue>(&kv);
            assert!(read.is_err(), "{kv}: {read:?}");
        }
    }
}
