//! A screen, drawn from plain data: title, picture of the zones, panels, status, keys.
//!
//! A terminal below 60 columns or 18 rows shows only the picture and two lines of numbers; one from
//! 120 columns on shows three columns of panels.

use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;
use ratatui::widgets::{Block, Clear, Paragraph};
use zonal_fs::furrow::Live;
use zonal_fuse::control::Report;
use zonal_fuse::control::page::age;

use super::picture::{Ink, Picture};
use super::snapshot::{Snapshot, What};
use super::{drive, panels};

/// Rows in which most panels fit.
const PANEL_ROWS: u16 = 12;

/// The text over the panels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Overlay {
    Nothing,
    Help,
}

/// Whether looks are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    Running,
    Paused,
}

/// Everything that a screen shows.
#[derive(Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) now: &'a Snapshot,
    pub(crate) before: Option<&'a Snapshot>,
    pub(crate) ink: Ink,
    pub(crate) pace: Pace,
    pub(crate) overlay: Overlay,
    pub(crate) interval_s: f64,
    /// Why there is no newer look.
    pub(crate) failure: Option<&'a str>,
}

/// A panel: its title, and its lines for so many columns.
pub(super) type Panel<'a> = (&'static str, Box<dyn Fn(usize) -> Vec<Line<'static>> + 'a>);

/// Draws the screen.
pub(crate) fn draw(frame: &mut Frame<'_>, view: &View<'_>) {
    let area = frame.area();
    let is_small = area.width < 60 || area.height < 18;
    let [title, rest, status, keys] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Min(0),
        Constraint::Length(u16::from(area.height >= 4)),
        Constraint::Length(u16::from(area.height >= 3)),
    ])
    .areas(area);
    frame.render_widget(heading(view, title.width.into()), title);
    let columns = columns(view, area.width);
    if is_small {
        let [zones, numbers] = Layout::vertical([
            Constraint::Min(3),
            Constraint::Length(if rest.height > 6 { 4 } else { 0 }),
        ])
        .areas(rest);
        frame.render_widget(Picture { zones: &view.now.zones, ink: view.ink }, zones);
        let lines = main_panel(&columns, numbers.width.into());
        frame.render_widget(Paragraph::new(lines), numbers);
    } else {
        let picture = Picture { zones: &view.now.zones, ink: view.ink };
        // The panels get the height that they need, the picture of the zones at most the rest.
        let panels_height = (rest.height / 2).clamp(14, 28).min(rest.height - 5);
        let most = Rect { width: rest.width - 2, height: rest.height - panels_height - 2, ..rest };
        let zones_height = picture.rows(most) + 2;
        let [zones, panels] =
            Layout::vertical([Constraint::Length(zones_height), Constraint::Fill(1)]).areas(rest);
        let block = Block::bordered();
        let title = match picture.per_sign(block.inner(zones)) {
            1 => format!(" {} zones ", view.now.zones.len()),
            many => format!(" {} zones, a sign for {many} ", view.now.zones.len()),
        };
        let block = block.title(title);
        frame.render_widget(picture, block.inner(zones));
        frame.render_widget(block, zones);
        draw_columns(frame, panels, &columns);
    }
    frame.render_widget(Paragraph::new(status_line(view, status.width.into())), status);
    frame.render_widget(Paragraph::new(keys_line(view)), keys);
    match view.overlay {
        Overlay::Nothing => {}
        Overlay::Help => draw_help(frame, view),
    }
}

/// The target of the looks. Without room for all facts of a mount, the transport of its requests is
/// left out first, then its age.
fn heading(view: &View<'_>, width: usize) -> Paragraph<'static> {
    let whats = match &view.now.what {
        What::Mount(report) => {
            let age = report.live.as_ref().map(|live| age(live.since_mount.ns));
            let age = age.map_or(String::new(), |age| format!(", for {age}"));
            let transport = match report.setting("transport") {
                "" => String::new(),
                transport => format!(", by {transport}"),
            };
            let short = format!("{}, {}", report.kind, report.setting("access"));
            [format!("{short}{transport}{age}"), format!("{short}{age}"), short]
        }
        What::Drive(_) => ["drive", "drive", "drive"].map(str::to_owned),
    };
    let right = match view.pace {
        Pace::Running => format!("every {} s ", view.interval_s),
        Pace::Paused => "PAUSED ".to_owned(),
    };
    let room = width.saturating_sub(right.len() + 1);
    let lefts = whats.map(|what| format!(" zonal top  {}  {what}", view.now.name));
    let fits = |left: &&String| left.chars().count() <= room;
    let left = lefts.iter().find(fits).unwrap_or(&lefts[2]);
    let left: String = left.chars().take(room).collect();
    let style = Style::new().add_modifier(Modifier::REVERSED);
    Paragraph::new(format!("{left:<room$} {right}")).style(style)
}

/// The panels by columns, left to right and top to bottom.
pub(super) fn columns<'a>(view: &View<'a>, width: u16) -> Vec<Vec<Panel<'a>>> {
    match &view.now.what {
        What::Mount(report) => {
            let before = view.before.and_then(|before| match &before.what {
                What::Mount(report) => Some(&**report),
                What::Drive(_) => None,
            });
            let looks = panels::Looks { now: report, before, ink: view.ink };
            of_mount(looks, report.live.as_ref(), width)
        }
        What::Drive(drive) => {
            let before = view.before.and_then(|before| match &before.what {
                What::Mount(_) => None,
                What::Drive(drive) => Some((drive, before.at_ns)),
            });
            let at_ns = before.map_or(view.now.at_ns, |(_, at_ns)| at_ns);
            let looks = drive::Looks {
                now: drive,
                before: before.map(|(drive, _)| drive),
                seconds: seconds(view.now.at_ns.saturating_sub(at_ns)),
                ink: view.ink,
            };
            vec![
                vec![
                    ("Now", Box::new(move |width| looks.rates(width)) as _),
                    ("Conditions", Box::new(move |width| looks.conditions(width)) as _),
                ],
                vec![("Zones being written", Box::new(move |width| looks.busiest(width)) as _)],
            ]
        }
    }
}

fn of_mount<'a>(
    looks: panels::Looks<'a>,
    live: Option<&'a Live>,
    width: u16,
) -> Vec<Vec<Panel<'a>>> {
    let latencies: Panel<'a> =
        ("Latency of the last minute", Box::new(move |width| looks.latencies(width)));
    let Some(live) = live else {
        let counters = move |width| counters(looks.now, width);
        return vec![vec![latencies], vec![("Counters", Box::new(counters))]];
    };
    let traffic: Panel<'a> = ("Written", Box::new(move |width| looks.traffic(live, width)));
    let space: Panel<'a> = ("Space", Box::new(move |width| looks.space(live, width)));
    let open: Panel<'a> = ("Open zones", Box::new(move |width| looks.open_zones(live, width)));
    if width < 120 {
        return vec![vec![traffic, space], vec![open, latencies]];
    }
    let shares: Panel<'a> =
        ("Zones by share in use", Box::new(move |width| looks.shares(live, width)));
    vec![vec![traffic, space], vec![open, shares], vec![latencies]]
}

/// The counters of a file system whose zones are files. A name is cut if its number needs the room.
fn counters(report: &Report, width: usize) -> Vec<Line<'static>> {
    let numbers = report.named.iter().filter_map(|(name, value)| Some((name, value.as_u64()?)));
    let line = |(name, value): (&String, u64)| {
        let value = value.to_string();
        let room = width.min(36).saturating_sub(value.len());
        let name: String = name.chars().take(room.saturating_sub(1)).collect();
        Line::raw(format!("{name:<room$}{value}"))
    };
    numbers.map(line).collect()
}

/// The lines that matter most, where there is room for few.
fn main_panel(columns: &[Vec<Panel<'_>>], width: usize) -> Vec<Line<'static>> {
    columns.first().and_then(|panels| panels.first()).map_or(Vec::new(), |(_, lines)| lines(width))
}

fn draw_columns(frame: &mut Frame<'_>, area: Rect, columns: &[Vec<Panel<'_>>]) {
    let widths = vec![Constraint::Fill(1); columns.len()];
    for (panels, area) in columns.iter().zip(Layout::horizontal(widths).split(area).iter()) {
        // Each panel has the height that it needs, up to half, or up to the height that leaves room
        // for another; the last one has the rest.
        let inner_width = usize::from(area.width.saturating_sub(2));
        let most = area.height.saturating_sub(PANEL_ROWS).max(area.height / 2);
        let last = panels.len() - 1;
        let height = |(index, (_, lines)): (usize, &Panel<'_>)| {
            let needed = u16::try_from(lines(inner_width).len() + 2).unwrap_or(u16::MAX);
            if index == last { Constraint::Fill(1) } else { Constraint::Length(needed.min(most)) }
        };
        let heights: Vec<Constraint> = panels.iter().enumerate().map(height).collect();
        for ((title, lines), area) in
            panels.iter().zip(Layout::vertical(heights).split(*area).iter())
        {
            let block = Block::bordered().title(format!(" {title} "));
            let inner = block.inner(*area);
            let mut lines = lines(inner.width.into());
            let room = usize::from(inner.height);
            if lines.len() > room && room > 0 {
                let more = lines.len() - room + 1;
                lines.truncate(room - 1);
                lines.push(panels::head(format!("and {more} more")));
            }
            frame.render_widget(block, *area);
            frame.render_widget(Paragraph::new(lines), inner);
        }
    }
}

fn status_line(view: &View<'_>, width: usize) -> Line<'static> {
    if let Some(failure) = view.failure {
        return Line::styled(format!(" {failure}"), Style::new().add_modifier(Modifier::BOLD));
    }
    Line::raw(match &view.now.what {
        What::Mount(report) => match &report.live {
            Some(live) => {
                panels::Looks { now: report, before: None, ink: view.ink }.status(live, width)
            }
            None => String::new(),
        },
        What::Drive(drive) => {
            drive::Looks { now: drive, before: None, seconds: 0.0, ink: view.ink }.status(width)
        }
    })
}

fn keys_line(view: &View<'_>) -> Line<'static> {
    let pause = match view.pace {
        Pace::Running => "pause",
        Pace::Paused => "go on",
    };
    let text = format!(" q quit  ? help  space {pause}  + slower  - faster  c colour");
    Line::styled(text, Style::new().add_modifier(Modifier::DIM))
}

fn draw_help(frame: &mut Frame<'_>, view: &View<'_>) {
    let picture = match view.ink {
        Ink::Colour => [
            "A sign is a zone, or several: then what is rarest",
            "in them decides. Height: how much of the zone is",
            "in use; of open zones, and where nobody knows, how",
            "much is written. Grey: written, in use no more.",
        ],
        Ink::Letters => [
            "A sign is a zone, or several: then what is rarest",
            "in them decides. A digit is a zone with data, so",
            "many tenths of it in use; # is all of it. What",
            "letters mean stands below the picture.",
        ],
    };
    let mut lines = vec![
        "q, Esc   quit              ?  this help",
        "space    pause             c  colour or letters",
        "+ -      look less or more often: 0.1 to 60 s",
        "r        look now",
        "",
    ];
    lines.extend(picture);
    lines.extend([
        "",
        "moved/freed: blocks that reclaim moved for each",
        "that it freed. A minute may be 66 s. The guide's",
        "page watching.md explains all numbers.",
    ]);
    let area = frame.area();
    let width = 56.min(area.width);
    let height = u16::try_from(lines.len() + 2).unwrap_or(u16::MAX).min(area.height);
    let at = Rect {
        x: area.x + (area.width - width) / 2,
        y: area.y + (area.height - height) / 2,
        width,
        height,
    };
    let lines: Vec<Line<'_>> =
        lines.into_iter().map(|line| Line::raw(format!(" {line}"))).collect();
    frame.render_widget(Clear, at);
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(" Help ")), at);
}

#[expect(clippy::cast_precision_loss, reason = "for rates")]
fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}
