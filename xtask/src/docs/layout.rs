//! Offsets and sizes of on-disk structs, from their source text.
//!
//! Such a struct is `#[repr(C)]` with fields that need no alignment, so offsets are running sums.
//! The sum must equal the size that the code itself pins with `assert!(size_of::<Name>() == N)`.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use anyhow::{Context, Result, bail};
use quote::ToTokens;
use syn::{Expr, Fields, Item, ItemStruct, Lit, Meta, Type};

/// The parsed structs and constants of one crate.
pub(super) struct Sources {
    structs: BTreeMap<String, ItemStruct>,
    consts: BTreeMap<String, Expr>,
    /// Sizes that the code asserts.
    pinned: BTreeMap<String, u64>,
}

impl Sources {
    /// Everything in the crate that `file` belongs to. Where a name is used twice, `file` decides.
    pub(super) fn of_crate(root: &Path, file: &str) -> Result<Self> {
        let (krate, _) = file.split_once("/src/").context("the file is in no crate's src")?;
        if !root.join(file).is_file() {
            bail!("{file} does not exist");
        }
        let mut sources =
            Self { structs: BTreeMap::new(), consts: BTreeMap::new(), pinned: BTreeMap::new() };
        sources.read_folder(&root.join(krate).join("src"))?;
        sources.read_file(&root.join(file))?;
        Ok(sources)
    }

    fn read_folder(&mut self, folder: &Path) -> Result<()> {
        let entries =
            std::fs::read_dir(folder).with_context(|| format!("listing {}", folder.display()))?;
        for entry in entries {
            let path = entry.context("listing sources")?.path();
            if path.is_dir() {
                self.read_folder(&path)?;
            } else if path.extension().is_some_and(|ending| ending == "rs") {
                self.read_file(&path)?;
            }
        }
        Ok(())
    }

    fn read_file(&mut self, path: &Path) -> Result<()> {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
        self.read_text(&text).with_context(|| format!("parsing {}", path.display()))
    }

    fn read_text(&mut self, text: &str) -> Result<()> {
        for item in syn::parse_file(text)?.items {
            match item {
                Item::Struct(item) => {
                    self.structs.insert(item.ident.to_string(), item);
                }
                Item::Const(item) if item.ident == "_" => self.read_assertion(&item.expr),
                Item::Const(item) => {
                    self.consts.insert(item.ident.to_string(), *item.expr);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Notes `assert!(size_of::<Name>() == N)`, alone or in a block of assertions.
    fn read_assertion(&mut self, expr: &Expr) {
        let text: String = expr.to_token_stream().to_string().replace(' ', "");
        for part in text.split("size_of::<").skip(1) {
            if let Some((name, rest)) = part.split_once(">()==") {
                let digits: String =
                    rest.chars().take_while(|c| c.is_ascii_digit() || *c == '_').collect();
                if let Ok(size) = digits.replace('_', "").parse() {
                    self.pinned.insert(name.to_owned(), size);
                }
            }
        }
    }

    /// The table of a struct, in Markdown.
    pub(super) fn table(&self, name: &str) -> Result<String> {
        let item = self.structs.get(name).with_context(|| format!("no struct {name}"))?;
        let Fields::Named(fields) = &item.fields else { bail!("{name} has no named fields") };
        let mut table =
            String::from("| at | bytes | field | meaning |\n| --- | --- | --- | --- |\n");
        let mut at = 0;
        for field in &fields.named {
            let ident = field.ident.as_ref().context("a field without a name")?;
            let bytes = self.size(&field.ty).with_context(|| format!("{name}.{ident}"))?;
            let meaning = first_paragraph(&field.attrs);
            if meaning.is_empty() {
                bail!("{name}.{ident} has no documentation");
            }
            writeln!(table, "| {at} | {bytes} | `{ident}` | {meaning} |")
                .expect("writing to a string cannot fail");
            at += bytes;
        }
        match self.pinned.get(name) {
            Some(size) if *size == at => Ok(table),
            Some(size) => bail!("{name} adds up to {at} bytes, but the code asserts {size}"),
            None => bail!("the code asserts no size of {name}"),
        }
    }

    fn size(&self, ty: &Type) -> Result<u64> {
        match ty {
            Type::Array(array) => Ok(self.size(&array.elem)? * self.value(&array.len)?),
            Type::Path(path) => {
                let name = path.path.segments.last().context("an empty path")?.ident.to_string();
                match name.as_str() {
                    "u8" | "i8" => Ok(1),
                    "U16" | "I16" => Ok(2),
                    "U32" | "I32" => Ok(4),
                    "U64" | "I64" => Ok(8),
                    "U128" | "I128" => Ok(16),
                    _ => self.size_of_struct(&name),
                }
            }
            other => bail!("the size of `{}` is not known", other.to_token_stream()),
        }
    }

    fn size_of_struct(&self, name: &str) -> Result<u64> {
        let item = self.structs.get(name).with_context(|| format!("no type {name}"))?;
        item.fields.iter().map(|field| self.size(&field.ty)).sum()
    }

    /// Value of a length: numbers, constants, sums, differences, products.
    fn value(&self, expr: &Expr) -> Result<u64> {
        match expr {
            Expr::Lit(literal) => match &literal.lit {
                Lit::Int(number) => Ok(number.base10_parse()?),
                other => bail!("`{}` is not a number", other.to_token_stream()),
            },
            Expr::Path(path) => {
                let name = path.path.segments.last().context("an empty path")?.ident.to_string();
                self.value(self.consts.get(&name).with_context(|| format!("no const {name}"))?)
            }
            Expr::Paren(inner) => self.value(&inner.expr),
            Expr::Cast(cast) => self.value(&cast.expr),
            Expr::Binary(binary) => {
                let (left, right) = (self.value(&binary.left)?, self.value(&binary.right)?);
                match &binary.op {
                    syn::BinOp::Add(_) => Some(left + right),
                    syn::BinOp::Sub(_) => left.checked_sub(right),
                    syn::BinOp::Mul(_) => Some(left * right),
                    _ => None,
                }
                .with_context(|| format!("`{}` is not understood", binary.to_token_stream()))
            }
            other => bail!("`{}` is not understood", other.to_token_stream()),
        }
    }
}

fn first_paragraph(attrs: &[syn::Attribute]) -> String {
    let mut words = String::new();
    for attr in attrs {
        let Meta::NameValue(pair) = &attr.meta else { continue };
        let Expr::Lit(literal) = &pair.value else { continue };
        let Lit::Str(text) = &literal.lit else { continue };
        if !pair.path.is_ident("doc") {
            continue;
        }
        let line = text.value();
        if line.trim().is_empty() {
            break;
        }
        if !words.is_empty() {
            words.push(' ');
        }
        words.push_str(line.trim());
    }
    words.replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = "
        const COPIES: usize = 1 + 1;
        /// Head.
        pub struct Head {
            /// `HEAD`.
            pub magic: [u8; 4],
            /// CRC-32C of bytes 8.. of the
            /// head.
            ///
            /// More.
            pub crc: little_endian::U32,
            /// Copies of a pair.
            pub pairs: [Pair; COPIES],
        }
        pub struct Pair { /// One.
            pub one: U16, /// Two.
            pub two: U64 }
        const _: () = assert!(size_of::<Head>() == 28);
        const _: () = { assert!(size_of::<Pair>() == 11); };
    ";

    fn sources() -> Sources {
        let mut sources =
            Sources { structs: BTreeMap::new(), consts: BTreeMap::new(), pinned: BTreeMap::new() };
        sources.read_text(SOURCE).expect("the source is Rust");
        sources
    }

    #[test]
    fn offsets_are_running_sums() {
        let table = sources().table("Head").expect("Head is well formed");
        assert!(table.contains("| 0 | 4 | `magic` | `HEAD`. |"), "{table}");
        assert!(table.contains("| 4 | 4 | `crc` | CRC-32C of bytes 8.. of the head. |"), "{table}");
        assert!(table.contains("| 8 | 20 | `pairs` |"), "{table}");
    }

    #[test]
    fn a_sum_that_differs_from_the_assertion_is_refused() {
        let error = sources().table("Pair").expect_err("10 is not 11");
        assert!(error.to_string().contains("10"), "{error}");
    }
}
