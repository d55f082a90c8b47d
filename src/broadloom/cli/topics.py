"""`broadloom topics`: browse a directory of topics, subscribe, publish, and serve a desk."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from rich.text import Text

from broadloom.cli.card import LevelChoice
from broadloom.cli.exit_codes import CommandFailedError, UsageError, usage_errors
from broadloom.cli.formatting import escape_control_chars, json_line, message_text, payload_json
from broadloom.cli.keys import AuthorityOption
from broadloom.cli.options import ChannelArgument, JsonOption, argument, command_group, named_values, option
from broadloom.cli.output import STDIN, Output, argument_data, console, print_json, print_result, table
from broadloom.cli.runner import StopSignal, command, hint
from broadloom.cli.service_options import DirectoryOptions, ServiceOptions

if TYPE_CHECKING:
    from broadloom.apps.delivery import Item, Topic

AUDIENCE_S = 2.0
"""How long `publish` and `advertise` wait for somebody to read it."""

topics = command_group(
    "Browse a directory of topics, subscribe, publish, and serve a desk.\n\n"
    "These are the topics of a delivery service, whose subscribers have tickets. Topics within one channel need no "
    "service: `broadloom send --topic`, `broadloom listen --topic`.\n\n"
    "The operator of a service creates its authority (`broadloom authority create --channel delivery/news`), issues a "
    "ticket to everyone (`broadloom ticket issue --role consumer`), and runs `serve`.\n\n"
    "Examples:\n\n"
    "- `broadloom topics serve delivery/news --authority news.authority --store news.db --creator ann`\n"
    "- `broadloom topics create delivery/news weather/berlin --producer ann --ticket ann.ticket`\n"
    "- `broadloom topics subscribe delivery/news weather --ticket ann.ticket`",
)

PathArgument = Annotated[str, argument("Path of the topic, as in `sports/nfl/scores`.", "PATH")]
EntryArgument = Annotated[str, argument("Path under which it was created.", "PATH")]
DataArgument = Annotated[str, argument("The data. Without it, or with `-`: standard input.", "[DATA]")]
NameArgument = Annotated[str, argument("Name on the ticket of the subscriber.", "NAME")]


@command("topics list", topics)
async def list_topics(
    service_options: ServiceOptions,
    channel: ChannelArgument,
    pattern: Annotated[str, argument("A topic, a category, or a pattern with `*` and `**`.", "[PATTERN]")] = "**",
    search: Annotated[str, option("Only topics whose path or title has all these words.", "WORDS")] = "",
    json: JsonOption = False,
) -> None:
    """List topics.

    Examples:

    - `broadloom topics list delivery/news --ticket ann.ticket`
    - `broadloom topics list delivery/news sports --search "nfl scores" --ticket ann.ticket --json`
    """
    async with service_options.open(channel) as service:
        with usage_errors():
            found = [each for each in service.topics(pattern) if not search or each in service.search(search)]
    if json:
        for each in found:
            print_json(each.as_dict())
        return
    rows = table(["topic", "title", "plans", "producers"])
    for each in found:
        rows.add_row(*(_cell(text) for text in (each.path, each.title, *map(_joined, _lists(each)))))
    if not found:
        rows.add_row(Text("none", style="dim"))
    console().print(rows)


@command("topics tree", topics)
async def tree(
    service_options: ServiceOptions,
    channel: ChannelArgument,
    path: Annotated[str, argument("Only this category.", "[PATH]")] = "",
    json: JsonOption = False,
) -> None:
    """Show the topics as a tree.

    Examples:

    - `broadloom topics tree delivery/news --ticket ann.ticket`
    """
    async with service_options.open(channel) as service:
        nodes = list(service.directory.tree(path))
    for depth, name, topic in nodes:
        if json:
            print_json({"depth": depth, "name": name, "path": topic.path if topic is not None else None})
        else:
            title = f"  {topic.title}" if topic is not None and topic.title else ""
            print(f"{'  ' * depth}{escape_control_chars(name + title)}{'' if topic is not None else '/'}")


@command("topics show", topics)
async def show(
    service_options: ServiceOptions,
    channel: ChannelArgument,
    path: PathArgument,
    json: JsonOption = False,
) -> None:
    """Show a topic: who produces it, what it costs, and who may read it.

    Examples:

    - `broadloom topics show delivery/news sports/nfl/scores --ticket ann.ticket`
    """
    async with service_options.open(channel) as service:
        topic = service.directory.topic(path)
        if topic is None:
            raise CommandFailedError(f"{channel} has no topic {path}; `broadloom topics list` shows all")
        prices = {name: text for name, text in (await service.prices()).items() if name in topic.entry.offer.plans}
        fields = {**topic.as_dict(), "prices": prices, "channel": topic.entry.channel}
    if json:
        print_json(fields)
        return
    rows = table(["", ""])
    for name, value in fields.items():
        rows.add_row(_cell(name), _cell(_value_text(value)))
    console().print(rows)


@command("topics create", topics)
async def create(
    service_options: ServiceOptions,
    channel: ChannelArgument,
    path: PathArgument,
    producer: Annotated[list[str] | None, option("Name of a producer; repeatable.", "NAME")] = None,
    topic: Annotated[
        list[str] | None,
        option("Topic below PATH with its producers; repeatable. All share one channel.", "NAME=PRODUCER,..."),
    ] = None,
    title: Annotated[str, option("A line for readers.", "TEXT")] = "",
    level: Annotated[LevelChoice, option("How members connect.")] = LevelChoice.tickets,
    plan: Annotated[list[str] | None, option("Plan that subscribers can choose; repeatable.", "NAME")] = None,
    qualification: Annotated[
        list[str] | None, option("What subscribers must be, as the desk knows it; repeatable.", "NAME")
    ] = None,
    identify: Annotated[float, option("Interval at which subscribers identify themselves.", "SECONDS")] = 3600.0,
    json: JsonOption = False,
) -> None:
    """Create a topic, or a category whose topics share one channel.

    A topic with a channel of its own can be kept from readers of other topics. Topics of one channel cost fewer
    connections, but every subscriber of one can read all of them.

    Examples:

    - `broadloom topics create delivery/news sports/nfl/scores --producer nfl --plan visitor --ticket ann.ticket`
    - `broadloom topics create delivery/news weather --topic berlin=dwd --topic paris=meteo --ticket ann.ticket`
    """
    named = {name: names.split(",") for name, names in named_values(topic, "--topic").items()}
    if named and producer:
        raise UsageError("use --producer for one topic, or --topic NAME=PRODUCER for several")
    async with service_options.open(channel) as service:
        with usage_errors():
            entry = await service.create(
                path,
                producers=producer or (),
                topics=named,
                title=title,
                level=level.value,
                plans=tuple(plan or ()),
                qualifications=tuple(qualification or ()),
                identify_s=identify,
                timeout_s=service_options.timeout,
            )
        fields = {"path": entry.path, "topics": list(entry.offer.topics), "channel": entry.channel}
    print_result(fields, f"created {escape_control_chars(path)}", json=json)


@command("topics close", topics)
async def close(
    service_options: ServiceOptions,
    channel: ChannelArgument,
    path: EntryArgument,
    text: Annotated[str, option("Text for subscribers: why, and where to go.")] = "",
    json: JsonOption = False,
) -> None:
    """Close a topic or category: its members leave.

    Examples:

    - `broadloom topics close delivery/news sports/nfl/scores --text "the season is over" --ticket ann.ticket`
    """
    async with service_options.open(channel) as service:
        await service.close_topic(path, text, timeout_s=service_options.timeout)
    print_result({"path": path, "closed": True}, f"closed {escape_control_chars(path)}", json=json)


@command("topics withdraw", topics)
async def withdraw(
    service_options: ServiceOptions,
    channel: ChannelArgument,
    path: EntryArgument,
    name: NameArgument,
    reinstate: Annotated[bool, option("Let a withdrawn subscriber subscribe again.")] = False,
    json: JsonOption = False,
) -> None:
    """Withdraw the subscription of a reader, or the right of a producer. All members disconnect it within seconds.

    Examples:

    - `broadloom topics withdraw delivery/news sports/nfl/scores bob --ticket ann.ticket`
    """
    async with service_options.open(channel) as service:
        if reinstate:
            await service.reinstate(name, path, timeout_s=service_options.timeout)
        else:
            await service.withdraw(name, path, timeout_s=service_options.timeout)
    done = "reinstated" if reinstate else "withdrawn"
    print_result({"path": path, "name": name, "state": done}, f"{escape_control_chars(name)}: {done}", json=json)


@command("topics subscribe", topics)
async def subscribe(
    stop: StopSignal,
    service_options: ServiceOptions,
    channel: ChannelArgument,
    pattern: Annotated[list[str], argument("Topics, categories, or patterns with `*` and `**`.", "PATTERN...")],
    plan: Annotated[str, option("The plan that you choose.", "NAME")] = "",
    count: Annotated[int, option("Stop after this many items. Default: until interrupted.", "N", min=0)] = 0,
    json: JsonOption = False,
) -> None:
    """Print the items of topics as they are published.

    Runs until interrupted. Topics that are created later and match belong to the feed too. Exit status 1 if no topic
    admits you; standard error says why.

    Examples:

    - `broadloom topics subscribe delivery/news sports weather/berlin --plan visitor --ticket ann.ticket`
    - `broadloom topics subscribe delivery/news "**" --ticket ann.ticket --json | jq .text`
    """
    async with service_options.open(channel) as service, Output(stop) as out:
        with usage_errors():
            feed = service.subscribe(*pattern, plan=plan, timeout_s=service_options.timeout)
        async with feed:
            stop.interrupt_is_success = True
            for topic, state in feed.topics.items():
                hint(f"{topic}: {state}")
            printed = 0
            async for item in feed:
                await out.write(f"{json_line(_item_fields(item)) if json else _item_text(item)}\n")
                printed += 1
                if printed == count:
                    return
            raise CommandFailedError("; ".join(f"{topic}: {state}" for topic, state in feed.topics.items()))


@command("topics publish", topics)
async def publish(
    service_options: ServiceOptions,
    channel: ChannelArgument,
    path: PathArgument,
    data: DataArgument = STDIN,
    json: JsonOption = False,
) -> None:
    """Publish an item on a topic. You must be one of its producers.

    Examples:

    - `broadloom topics publish delivery/news sports/nfl/scores "Bears 21:14" --ticket nfl.ticket`
    """
    content = await argument_data(data)
    async with (
        service_options.open(channel) as service,
        service.produce(path, timeout_s=service_options.timeout) as producer,
    ):
        members = await producer.wait_briefly_for_subscribers(AUDIENCE_S)
        await producer.publish(content)
    print_result({"path": path, "members": members}, f"published to {members:,} members", json=json)


@command("topics advertise", topics)
async def advertise(
    service_options: ServiceOptions,
    channel: ChannelArgument,
    path: PathArgument,
    name: Annotated[str, argument("Name of the ad, as in the billing file.", "NAME")],
    data: DataArgument = STDIN,
    json: JsonOption = False,
) -> None:
    """Show an ad on a topic. Meters record it, and the pipeline charges it by the number of subscribers connected.

    Examples:

    - `broadloom topics advertise delivery/news sports/nfl/scores spring-sale "Tea" --ticket nfl.ticket`
    """
    content = await argument_data(data)
    async with (
        service_options.open(channel) as service,
        service.produce(path, timeout_s=service_options.timeout) as producer,
    ):
        members = await producer.wait_briefly_for_subscribers(AUDIENCE_S)
        with usage_errors():
            await producer.advertise(name, content)
    print_result({"path": path, "ad": name, "members": members}, f"shown to {members:,} members", json=json)


@command("topics serve", topics)
async def serve(
    stop: StopSignal,
    directory_options: DirectoryOptions,
    channel: ChannelArgument,
    authority: AuthorityOption,
    store: Annotated[
        Path | None, option("SQLite file of the directory. Without it, the directory ends with its members.", "FILE")
    ] = None,
    creator: Annotated[list[str] | None, option("Name that may create topics; repeatable. `*`: all.", "NAME")] = None,
    operator: Annotated[
        list[str] | None, option("Name that may close and withdraw what others created; repeatable.", "NAME")
    ] = None,
    qualification: Annotated[
        list[str] | None,
        option("File with the names that have a qualification, one per line; repeatable.", "NAME=FILE"),
    ] = None,
    billing: Annotated[
        Path | None, option("Billing file of the pipeline: readers see what its plans cost.", "FILE")
    ] = None,
    ticket_hours: Annotated[float, option("Longest lifetime of tickets for topics.", "HOURS")] = 24.0,
    json: JsonOption = False,
) -> None:
    """Serve a desk: admit subscribers and producers, create topics, issue and withdraw tickets.

    Runs until interrupted. Several desks can run; each suffices. The desk needs the private key of the authority: run
    it on machines that you trust.

    Examples:

    - `broadloom topics serve delivery/news --authority news.authority --store news.db --creator ann`
    - `broadloom topics serve delivery/news --authority news.authority --qualification paid=paid.txt`
    - `broadloom topics serve delivery/news --authority news.authority --billing billing.toml`
    """
    from broadloom.apps import delivery
    from broadloom.cli.service_options import NamesFile, expanded_names
    from broadloom.security import Authority

    qualified = {name: NamesFile(file) for name, file in named_values(qualification, "--qualification").items()}
    with usage_errors():
        desk = delivery.Desk(
            channel,
            Authority.load(authority),
            store=store,
            qualifications=qualified,
            creators=expanded_names(creator),
            operators=expanded_names(operator),
            prices=_prices(billing),
            ticket_s=ticket_hours * 3600,
            **directory_options.connect_options(),
        )
    async with desk, Output(stop) as out:
        stop.interrupt_is_success = True
        fields = {"event": "serving", "channel": channel, "topics": len(desk.directory)}
        text = f"serving {escape_control_chars(channel)}: {len(desk.directory):,} topics"
        await out.write(f"{json_line(fields) if json else text}\n")
        async for _ in desk.channel.events():
            pass


@command("topics subscribers", topics)
async def subscribers(
    directory_options: DirectoryOptions,
    channel: ChannelArgument,
    authority: AuthorityOption,
    time_zone: Annotated[str, option("Time zone of the billing file.", "ZONE")] = "UTC",
    json: JsonOption = False,
) -> None:
    """Print who is on which plan since when, for the billing file of the pipeline.

    Needs the authority: only desks can read this.

    Examples:

    - `broadloom topics subscribers delivery/news --authority news.authority`
    """
    from zoneinfo import ZoneInfo

    from broadloom.apps import delivery
    from broadloom.apps.delivery.billing_file import subscribers_toml
    from broadloom.security import Authority

    with usage_errors():
        desk = delivery.Desk(channel, Authority.load(authority), **directory_options.connect_options())
        try:
            zone = ZoneInfo(time_zone)
        except (KeyError, ValueError, OSError):
            raise UsageError(f"unknown time zone {time_zone!r}; use one such as Europe/Berlin") from None
    async with desk:
        records = desk.subscribers()
        if not records:
            hint("no subscribers are known; a running desk, or another member of the directory, has their records")
        if json:
            for each in records:
                print_json(each.as_dict())
        else:
            print(subscribers_toml(records, desk.listing_of, zone), end="")


def _prices(billing: Path | None) -> dict[str, str]:
    if billing is None:
        return {}
    from broadloom.pipeline.billing.config import load
    from broadloom.pipeline.billing.config_section import BillingConfigError
    from broadloom.pipeline.billing.price_text import price_text

    try:
        config = load(billing)
    except BillingConfigError as problem:
        raise UsageError(str(problem)) from None
    return {name: price_text(plan, config.currency) for name, plan in config.plans.items()}


def _item_fields(item: "Item") -> dict[str, Any]:
    return {
        "topic": item.topic,
        "producer": item.producer,
        **payload_json(item.data),
        "sent_at_ms": item.sent_at_ms,
        "advert": item.advert,
    }


def _item_text(item: "Item") -> str:
    mark = f" [ad {escape_control_chars(item.advert)}]" if item.advert else ""
    return f"{escape_control_chars(item.topic)}{mark}: {message_text(item.data)}"


def _lists(topic: "Topic") -> tuple[Any, Any]:
    return topic.entry.offer.plans or ("free",), topic.producers


def _joined(values: Any) -> str:
    return ", ".join(map(str, values))


def _value_text(value: Any) -> object:
    if isinstance(value, dict):
        return _joined(f"{name}: {text}" for name, text in value.items())
    return _joined(value) if isinstance(value, list) else value


def _cell(value: object) -> Text:
    return Text(escape_control_chars(str(value if value is not None else "")))
