//! The outputs of a step in a record. They become JSON only when the line is written, which is not on the way of the
//! job.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// The outputs of a step: as a machine decided them, or as a line has them.
#[derive(Debug, Clone)]
pub enum Outputs<T> {
    /// What a machine decided.
    Decided(Vec<T>),
    /// What a line says.
    Recorded(Vec<Value>),
}

impl<T: Serialize> Outputs<T> {
    /// The outputs as a line has them.
    pub fn values(&self) -> Vec<Value> {
        match self {
            // Outputs consist of numbers, strings and lists, which JSON can always represent.
            Self::Decided(outputs) => outputs
                .iter()
                .map(|output| serde_json::to_value(output).unwrap_or_default())
                .collect(),
            Self::Recorded(values) => values.clone(),
        }
    }
}

impl<T: Serialize> PartialEq for Outputs<T> {
    fn eq(&self, other: &Self) -> bool {
        self.values() == other.values()
    }
}

impl<T: Serialize> Serialize for Outputs<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Decided(outputs) => outputs.serialize(serializer),
            Self::Recorded(values) => values.serialize(serializer),
        }
    }
}

impl<'de, T> Deserialize<'de> for Outputs<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Vec::deserialize(deserializer).map(Self::Recorded)
    }
}
