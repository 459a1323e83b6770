//! `kubectl device`: list, taint and untaint single devices.
//!
//! What flows through: [`cli`] parses, [`world`] reads the cluster once, [`list`], [`mark`] and [`form`] decide purely, and this file
//! writes: to the API server, and to the terminal. Exit codes: 0 done; 1 refused or failed; 2 a flag does not parse.

mod cli;
mod form;
mod list;
mod mark;
mod table;
mod target;
mod who;
mod world;

use std::io::Write as _;
use std::process::ExitCode;

use clap::Parser;
use cluster::mark::{Form, Stored};
use cluster::{ConnectOptions, connect};
use taints::Effect;
use taints::object::DeviceId;

use crate::cli::{Arguments, Command, ListArguments, TaintArguments, UntaintArguments};
use crate::world::World;

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(arguments).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nobody is left to tell when stderr is closed.
            writeln!(std::io::stderr(), "error: {}", cluster::call::chain(error.as_ref())).ok();
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: Arguments) -> anyhow::Result<()> {
    let options = ConnectOptions {
        kubeconfig: arguments.connection.kubeconfig,
        context: arguments.connection.context,
        user_agent: concat!("kubectl-device/", env!("CARGO_PKG_VERSION")).to_owned(),
    };
    let client = connect(&options).await?;
    match arguments.command {
        Command::List(wish) => list(&client, &wish).await,
        Command::Taint(wish) => taint(&client, &wish).await,
        Command::Untaint(wish) => untaint(&client, &wish).await,
    }
}

/// Lists what could be understood. What could not is an error all the same: a list that leaves something out would be believed.
async fn list(client: &kube::Client, wish: &ListArguments) -> anyhow::Result<()> {
    let world = World::read(client).await?;
    let rows = list::rows(&world, &wish.nodes);
    let missing = list::missing(&world, &rows, &wish.nodes);
    if !rows.is_empty() || missing.is_none() {
        print(&written(&rows, wish.output)?)?;
    }
    let lacks = world.problems.iter().map(|problem| format!("the list may lack something: {problem}"));
    let problems: Vec<String> = lacks.chain(missing).collect();
    anyhow::ensure!(problems.is_empty(), "{}", problems.join("; "));
    Ok(())
}

fn written(rows: &[list::Row], output: cli::Output) -> anyhow::Result<String> {
    match output {
        cli::Output::Table => Ok(list::table(rows, false)),
        cli::Output::Wide => Ok(list::table(rows, true)),
        cli::Output::Name => Ok(list::names(rows)),
        cli::Output::Json => Ok(serde_json::to_string_pretty(rows)? + "\n"),
    }
}

async fn taint(client: &kube::Client, wish: &TaintArguments) -> anyhow::Result<()> {
    let world = World::read(client).await?;
    let server = &world.server;
    let forms = form::served(server)?;
    let found = target::find(&world, &wish.target, wish.driver.as_deref())?;
    let mark = mark::wished(&found, wish, who::ask(client).await)?;
    let existing = existing(client, &forms, &mark.name()).await?;
    let said = match mark::decide_taint(mark, existing.as_ref(), wish.overwrite)? {
        mark::Taint::Create(mark) => {
            let form = form_of_new(client, &world, &found).await?;
            let stored = cluster::mark::create(client, form, &mark).await?;
            mark::tainted_text(server, &stored, "tainted", &[])
        }
        mark::Taint::Change(form, mark, news) => {
            let stored = cluster::mark::apply(client, form, &mark).await?;
            mark::tainted_text(server, &stored, "modified", &news)
        }
        mark::Taint::Nothing(stored) => mark::tainted_text(server, &stored, "unchanged", &[]),
    };
    print(&format!("device {}/{} {said}\n", found.id.pool, found.id.device))
}

/// The object of this name, in whatever form: a mark from before an upgrade of the server is kept, and not doubled.
async fn existing(client: &kube::Client, forms: &[Form], name: &str) -> anyhow::Result<Option<Stored>> {
    for form in forms {
        match cluster::mark::get(client, *form, name).await? {
            // As good as gone: the controller would take it away, and the new wish with it.
            Some(old) if mark::is_over(&old.rule, mark::now()) => cluster::mark::delete(client, &old).await?,
            Some(there) => return Ok(Some(there)),
            None => {}
        }
    }
    Ok(None)
}

async fn form_of_new(client: &kube::Client, world: &World, found: &target::Found) -> anyhow::Result<Form> {
    let form = form::of_new(&world.server, found)?;
    if form == Form::Mark {
        let answered = match cluster::probe::stores_slice_taints(client, &Effect::NoSchedule).await {
            // Who may not write slices gets no answer.
            Err(error) if error.code() == Some(403) => None,
            answer => Some(answer?),
        };
        form::check_stored(&world.server, answered, world.has_slice_taints())?;
    }
    Ok(form)
}

async fn untaint(client: &kube::Client, wish: &UntaintArguments) -> anyhow::Result<()> {
    let world = World::read(client).await?;
    let forms = form::served(&world.server)?;
    let found = target::find(&world, &wish.target, wish.driver.as_deref());
    let id = match &found {
        Ok(found) => found.id.clone(),
        // A device that is not published now may still carry a mark: its name is enough to take it away.
        Err(target::TargetError::Unknown { node, device, .. }) => {
            unlisted(&world, node, device, wish.driver.as_deref())?
        }
        Err(error) => anyhow::bail!("{error}"),
    };
    let mut marks = Vec::new();
    for form in forms {
        marks.extend(cluster::mark::list(client, form).await?);
    }
    for stored in mark::decide_untaint(&id, &wish.taint, &marks, found.as_ref().ok())? {
        cluster::mark::delete(client, stored).await?;
        print(&format!("device {}/{} {}\n", id.pool, id.device, mark::untainted_text(stored)))?;
    }
    Ok(())
}

/// The name of a device that no slice lists, from the marks that name it.
fn unlisted(world: &World, node: &str, device: &str, driver: Option<&str>) -> anyhow::Result<DeviceId> {
    let mut drivers: Vec<&str> =
        world.marked(node, device).filter(|named| driver.is_none_or(|want| want == *named)).collect();
    drivers.dedup();
    match drivers.as_slice() {
        [driver] => Ok(DeviceId { driver: (*driver).to_owned(), pool: node.to_owned(), device: device.to_owned() }),
        [] => anyhow::bail!("no slice lists device {node}/{device}, and no mark of kubectl device names it"),
        several => {
            anyhow::bail!("marks of several drivers name {node}/{device}: {}; choose with --driver", several.join(", "))
        }
    }
}

fn print(text: &str) -> anyhow::Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        // `kubectl device list | head` is no failure.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        done => Ok(done?),
    }
}
