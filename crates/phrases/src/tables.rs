//! The texts, one file for each language.

mod english;
mod french;
mod german;
mod japanese;
mod simplified_chinese;
mod spanish;
mod traditional_chinese;

pub(crate) use self::{
    english::ENGLISH, french::FRENCH, german::GERMAN, japanese::JAPANESE,
    simplified_chinese::SIMPLIFIED_CHINESE, spanish::SPANISH,
    traditional_chinese::TRADITIONAL_CHINESE,
};
