//! The modules that a source file names: its `use` items, and paths in its code.
//!
//! This reads tokens and no syntax tree, since paths in the arguments of macros count too. It
//! leaves out code under `#[cfg(test)]`, because tests of a low room may use a higher one.

use std::str::FromStr;

use anyhow::{Result, anyhow};
use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// The modules that a file names, and the modules that it declares.
#[derive(Debug, Default)]
pub(super) struct Source {
    pub(super) references: Vec<Reference>,
    pub(super) children: Vec<Child>,
}

/// One path that a file names.
#[derive(Debug, PartialEq)]
pub(super) struct Reference {
    pub(super) line: usize,
    /// The module in which the path stands.
    pub(super) module: Vec<String>,
    /// The path from the crate's root.
    pub(super) path: Vec<String>,
    pub(super) kind: Kind,
}

/// How a path is written.
#[derive(Debug, PartialEq)]
pub(super) enum Kind {
    /// In code.
    Inline,
    /// By a `use`, under this name.
    Named(String),
    /// By a `use` of everything in it.
    Glob,
}

/// A module that lies in a file of its own.
#[derive(Debug, PartialEq)]
pub(super) struct Child {
    /// Its path from the crate's root.
    pub(super) module: Vec<String>,
    pub(super) is_test: bool,
}

/// Reads the text of the file of `module`.
pub(super) fn read(text: &str, module: &[String]) -> Result<Source> {
    let tokens = TokenStream::from_str(text).map_err(|error| anyhow!("{error}"))?;
    let mut source = Source::default();
    source.scan(tokens, module);
    Ok(source)
}

impl Source {
    fn scan(&mut self, tokens: TokenStream, module: &[String]) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut rest = &tokens[..];
        while let [first, after @ ..] = rest {
            rest = match first {
                TokenTree::Punct(punct) if punct.as_char() == '#' => match after {
                    [bang, TokenTree::Group(attribute), ..]
                        if is_punct(bang, '!') && is_for_tests(attribute.stream()) =>
                    {
                        return;
                    }
                    [TokenTree::Group(attribute), item @ ..]
                        if is_for_tests(attribute.stream()) =>
                    {
                        self.pass_over(item, module)
                    }
                    _ => after,
                },
                TokenTree::Punct(_) if starts_with_colons(rest) => behind_path(&rest[2..]),
                TokenTree::Ident(word) if word == "mod" => self.declaration(after, module),
                TokenTree::Ident(word) if word == "use" => self.import(after, module),
                TokenTree::Ident(_) => self.inline(rest, module),
                TokenTree::Group(group) => {
                    self.scan(group.stream(), module);
                    after
                }
                _ => after,
            };
        }
    }

    /// `mod name;` or `mod name { … }`, behind `mod`.
    fn declaration<'a>(&mut self, tokens: &'a [TokenTree], module: &[String]) -> &'a [TokenTree] {
        let [TokenTree::Ident(name), next, rest @ ..] = tokens else { return tokens };
        let child = [module, &[plain(&name.to_string())]].concat();
        match next {
            TokenTree::Group(body) => self.scan(body.stream(), &child),
            _ => self.children.push(Child { module: child, is_test: false }),
        }
        rest
    }

    /// The tree of a `use`, behind `use`. The `use<'_>` of a bound is not one.
    fn import<'a>(&mut self, tokens: &'a [TokenTree], module: &[String]) -> &'a [TokenTree] {
        if tokens.first().is_none_or(|token| is_punct(token, '<')) {
            return tokens;
        }
        let end = tokens.iter().position(|token| is_punct(token, ';')).unwrap_or(tokens.len());
        self.tree(&tokens[..end], &[], module);
        &tokens[end..]
    }

    /// One branch of the tree of a `use`, behind `prefix`.
    fn tree(&mut self, tokens: &[TokenTree], prefix: &[String], module: &[String]) {
        let Some(first) = tokens.first() else { return };
        let line = first.span().start().line;
        let (names, rest) = segments(tokens);
        let path = [prefix, &names[..]].concat();
        match rest {
            [TokenTree::Group(group), ..] if group.delimiter() == Delimiter::Brace => {
                let branches: Vec<TokenTree> = group.stream().into_iter().collect();
                branches
                    .split(|token| is_punct(token, ','))
                    .for_each(|branch| self.tree(branch, &path, module));
            }
            [star, ..] if is_punct(star, '*') => self.add(line, module, &path, Kind::Glob),
            [TokenTree::Ident(_), TokenTree::Ident(alias), ..] => {
                self.add(line, module, &path, Kind::Named(plain(&alias.to_string())));
            }
            _ => {
                let name = path.iter().rfind(|name| *name != "self").cloned();
                self.add(line, module, &path, Kind::Named(name.unwrap_or_default()));
            }
        }
    }

    /// A path in code, or a single word.
    fn inline<'a>(&mut self, tokens: &'a [TokenTree], module: &[String]) -> &'a [TokenTree] {
        let (names, rest) = segments(tokens);
        if names.len() > 1 {
            self.add(tokens[0].span().start().line, module, &names, Kind::Inline);
        }
        rest
    }

    /// Notes a path as it is written in `module`.
    fn add(&mut self, line: usize, module: &[String], written: &[String], kind: Kind) {
        let mut path = module.to_vec();
        for (at, name) in written.iter().enumerate() {
            match name.as_str() {
                "crate" if at == 0 => path.clear(),
                "super" => drop(path.pop()),
                "self" => {}
                name => path.push(name.to_owned()),
            }
        }
        self.references.push(Reference { line, module: module.to_vec(), path, kind });
    }

    /// Goes behind the item that `#[cfg(test)]` is about, and notes it if it is a module with a
    /// file of its own.
    fn pass_over<'a>(&mut self, tokens: &'a [TokenTree], module: &[String]) -> &'a [TokenTree] {
        let mut rest = tokens;
        loop {
            rest = match rest {
                [hash, TokenTree::Group(_), after @ ..] if is_punct(hash, '#') => after,
                [TokenTree::Ident(word), TokenTree::Group(group), after @ ..]
                    if word == "pub" && group.delimiter() == Delimiter::Parenthesis =>
                {
                    after
                }
                [TokenTree::Ident(word), after @ ..] if word == "pub" => after,
                _ => break,
            };
        }
        if let [TokenTree::Ident(word), TokenTree::Ident(name), end, after @ ..] = rest
            && word == "mod"
            && is_punct(end, ';')
        {
            let module = [module, &[plain(&name.to_string())]].concat();
            self.children.push(Child { module, is_test: true });
            return after;
        }
        let end = match rest.first() {
            Some(TokenTree::Ident(word)) if ends_with_semicolon(&word.to_string(), rest) => {
                rest.iter().position(|token| is_punct(token, ';'))
            }
            Some(TokenTree::Ident(word)) if ITEMS.contains(&&*word.to_string()) => {
                rest.iter().position(|token| is_punct(token, ';') || is_block(token))
            }
            // A field, an arm or a statement.
            _ => rest
                .iter()
                .position(|token| is_punct(token, ';') || is_punct(token, ',') || is_block(token)),
        };
        end.map_or(&[], |end| &rest[end + 1..])
    }
}

/// Words that begin an item. The item ends with a block, or with a semicolon if it has none.
const ITEMS: &[&str] = &[
    "async", "const", "enum", "extern", "fn", "impl", "mod", "struct", "trait", "union", "unsafe",
];

/// Whether an item that begins with `word` ends with a semicolon though it may have a block.
fn ends_with_semicolon(word: &str, tokens: &[TokenTree]) -> bool {
    let is_function = tokens.iter().take(4).any(|token| token.to_string() == "fn");
    matches!(word, "use" | "let" | "static" | "type") || word == "const" && !is_function
}

/// Names that follow each other, with `::` between them, and the tokens behind them (and behind a
/// `::` at their end).
fn segments(tokens: &[TokenTree]) -> (Vec<String>, &[TokenTree]) {
    let mut names = Vec::new();
    let mut rest = tokens;
    while let [TokenTree::Ident(name), after @ ..] = rest {
        names.push(plain(&name.to_string()));
        rest = after;
        if !starts_with_colons(rest) {
            break;
        }
        rest = &rest[2..];
    }
    (names, rest)
}

/// The tokens behind a path whose first names have been read, as in `a::<B>::c::d`.
fn behind_path(tokens: &[TokenTree]) -> &[TokenTree] {
    segments(tokens).1
}

fn starts_with_colons(tokens: &[TokenTree]) -> bool {
    matches!(tokens, [first, second, ..] if is_punct(first, ':') && is_punct(second, ':'))
}

fn is_punct(token: &TokenTree, wanted: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == wanted)
}

fn is_block(token: &TokenTree) -> bool {
    matches!(token, TokenTree::Group(group) if group.delimiter() == Delimiter::Brace)
}

/// Whether the content of an attribute is `cfg(test)`, alone or with more conditions.
fn is_for_tests(attribute: TokenStream) -> bool {
    let tokens: Vec<TokenTree> = attribute.into_iter().collect();
    let [TokenTree::Ident(name), TokenTree::Group(condition)] = &tokens[..] else { return false };
    let condition = condition.stream().to_string().replace(' ', "");
    let all = condition.strip_prefix("all(").and_then(|rest| rest.strip_suffix(')'));
    name == "cfg" && all.unwrap_or(&condition).split(',').any(|one| one == "test")
}

/// A name without the mark of a raw one.
fn plain(name: &str) -> String {
    name.strip_prefix("r#").unwrap_or(name).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Paths that `text` names as the file of the module `crate::a::b`.
    fn paths(text: &str) -> Vec<String> {
        let source = read(text, &["a".to_owned(), "b".to_owned()]).unwrap();
        source.references.iter().map(|reference| reference.path.join("::")).collect()
    }

    #[test]
    fn use_tree_gives_a_path_for_each_name() {
        let text =
            "use super::{c::{D, e::*}, f as g, self};\npub use crate::h::I;\nuse self::j::K;";
        let expected = ["a::c::D", "a::c::e", "a::f", "a", "h::I", "a::b::j::K"];
        assert_eq!(paths(text), expected);
    }

    #[test]
    fn code_gives_inline_paths_also_inside_macros() {
        let text =
            "fn f() -> super::C { assert!(matches!(x, crate::d::E::<F>::g::h { .. })); self.k; }";
        assert_eq!(paths(text), ["a::C", "d::E"]);
    }

    #[test]
    fn module_inside_a_file_is_one_step_deeper() {
        assert_eq!(paths("mod c { use super::super::d; }\nuse super::e;"), ["a::d", "a::e"]);
    }

    #[test]
    fn test_code_gives_nothing() {
        let text = "#[cfg(test)]\nuse super::{c, d};\nuse super::e;\n#[cfg(test)]\n#[rustfmt::skip]\n\
                    pub(super) fn f<A, B>(a: [u8; 3]) -> super::G { super::h() }\nfn i() { super::j() }\n\
                    #[cfg(all(test, unix))] mod tests { use super::super::k; }\n\
                    struct L { #[cfg(test)] m: super::n::O, p: super::q::R }";
        assert_eq!(paths(text), ["a::e", "a::j", "a::q::R"]);
        assert_eq!(paths("#![cfg(test)]\nuse super::c;"), [""; 0]);
        assert_eq!(paths("#[cfg(feature = \"testing\")]\nuse super::c;"), ["a::c"]);
    }

    #[test]
    fn modules_in_files_are_found_with_whether_they_are_tests() {
        let source = read("pub mod c;\n#[cfg(test)]\nmod d;\nmod e { mod f; }", &[]).unwrap();
        let found: Vec<(String, bool)> =
            source.children.iter().map(|child| (child.module.join("::"), child.is_test)).collect();
        let expected = [("c", false), ("d", true), ("e::f", false)];
        assert_eq!(found, expected.map(|(module, is_test)| (module.to_owned(), is_test)));
    }

    #[test]
    fn references_know_their_line_and_their_name() {
        let source =
            read("\n\nuse super::c::D as E;\n", &["a".to_owned(), "b".to_owned()]).unwrap();
        assert_eq!(source.references[0].line, 3);
        assert_eq!(source.references[0].kind, Kind::Named("E".to_owned()));
    }
}
