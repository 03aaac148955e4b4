# SPDX-FileCopyrightText: 2026 The colls authors
# SPDX-License-Identifier: BSL-1.0
"""Makes the pages of the API reference, for Sphinx's C++ domain, of Doxygen's XML."""

import collections
import pathlib
import re
import xml.etree.ElementTree as xml

# page: (title, introduction, headers in their order). The last page takes the headers of these folders of
# include/colls that no other page names. The headers of other folders that no page names are internal.
FOLDERS = (".", "call", "ddp", "objects")
PAGES = {
    "communicator": ("Communicators and calls", "Include ``<colls/world.hpp>`` or any header that makes ranks.",
                     "world call/communicator call/call call/arguments call/probed_message call/gathered call/batch "
                     "call/prepared_calls base/options base/algorithm_names"),
    "starting": ("Starting ranks", "Processes: ``run``, ``join``; ranks of one process: ``inproc``, ``threads``, "
                 "``simulated``.", "run join bootstrap/config bootstrap/launcher_environment bootstrap/fixed_string "
                 "base/clock inproc transport/inproc/inproc_transport threads transport/threads/thread_transport "
                 "simulated transport/simulated/simulated_transport transport/simulated/network_model "
                 "transport/simulated/fault_plan"),
    "data": ("Data", "The buffers and elements that calls take.",
             "base/buffer base/shared_buffer base/strided_view call/view_access call/view_calls call/buffer_list "
             "torch_tensor dlpack base/element_type base/half"),
    "objects": ("Objects", "Include ``<colls/objects.hpp>``.", "objects objects/serializer"),
    "grid": ("Grids and neighbours", "Include ``<colls/grid.hpp>``.", "grid call/neighbours"),
    "operations": ("Operations of reductions", "Include ``<colls/op.hpp>``, or any header that makes ranks.",
                   "base/op base/op_traits"),
    "awaiting": ("Awaiting", "Coroutines, several operations at a time, blocking waits, Asio.",
                 "coroutine/task coroutine/when_all when_any stop_when coroutine/sync_wait asio"),
    "errors": ("Errors", "Include ``<colls/error.hpp>``, or any header that makes ranks.", "base/error base/recovery format"),
    "costs": ("Costs and choices", "The costs of a network, and how the algorithm of a call is chosen.",
              "base/network_cost base/algorithm_choice algorithm/selection_query selection/tuning"),
    "training": ("Training", "Include ``<colls/torch.hpp>``; what does not need libtorch is in ``<colls/ddp/...>``.",
                 "torch torch_checkpoint torch_elastic ddp/options ddp/sampler ddp/checkpoint ddp/gradient_buckets ddp/bucket_plan "
                 "ddp/compression ddp/driver ddp/replicate"),
    "gpu": ("Device memory", "Communicators for the memory of GPUs.",
            "cuda/attach cuda/staged cuda/ipc cuda/nccl cuda/memory cuda/stream cuda/check cuda/reduce cuda/half"),
    "extending": ("Algorithms and transports of your own", "What a new algorithm or transport is built on.",
                  "algorithm/description channel/channel channel/layered_transport channel/operations channel/recv_reduce channel/transport "
                  "base/partition base/pattern base/pattern/trees base/pattern/circulant base/loggp base/loggp_model "
                  "base/node_map coroutine/completion matching/tag_matcher matching/posted_receive "
                  "transport transport/interprocess/transport_base bootstrap/world_info "
                  "transport/interprocess/carrier/carrier "
                  "transport/interprocess/carrier/pipe transport/interprocess/carrier/stream_pipe os/fd_mailbox"),
    "fabrics": ("Fabrics", "Include ``<colls/transport/ucx.hpp>``.", "transport/ucx transport/ucx/worker"),
    "mpi": ("MPI", "Include ``<colls/mpi.hpp>``.", "mpi transport/mpi/mpi_transport"),
    "more": ("More headers", "", ""),
}
KINDS = {"class": "class", "struct": "struct", "concept": "concept", "enum": "enum-class",
         "function": "function", "typedef": "type", "variable": "var"}


def named():
    return {header for _, _, headers in PAGES.values() for header in headers.split()}


def is_public(header):
    return header in named() or pathlib.PurePosixPath(header).parent.as_posix() in FOLDERS


def text_of(element):
    return re.sub(r"\s+", " ", "".join(element.itertext())).strip() if element is not None else ""


def code(text):
    """C++ as Doxygen prints it, without its spaces inside brackets."""
    text = re.sub(r"\b(operation|task)(?= *&*$)", r"\1<>", text) if text in ("operation", "task") else text
    return re.sub(r" ?([<>]) ?(?=[\w:<>,&*()]|$)", r"\1", text).replace(" &", "& ").replace("& &", "&& ")


class Writer:
    def __init__(self, folder, include):
        self.folder = pathlib.Path(folder)
        said = re.findall(r'return \{"(\w+)",\s*((?:"[^"]*"\s*)+)\}', (include / "colls/base/error.hpp").read_text())
        hints = {name: re.sub(r'"\s*"|"', "", hint).strip() for name, hint in said}
        self.hints = {name: re.sub(r"([^?])$", r"\1.", hint[:1].upper() + hint[1:]) for name, hint in hints.items()}
        self.compounds = {}  # id: element
        self.of_header = collections.defaultdict(list)  # header: [(line, name of the scope, element)]
        for entry in xml.parse(self.folder / "index.xml").getroot():
            if "detail" in entry.findtext("name").split("::"):
                continue
            if entry.get("kind") in ("class", "struct", "concept", "namespace"):
                compound = xml.parse(self.folder / (entry.get("refid") + ".xml")).getroot()[0]
                self.compounds[compound.get("id")] = compound
        inner = {ref.get("refid") for compound in self.compounds.values() if compound.get("kind") in KINDS
                 for ref in compound.findall("innerclass")}
        for compound in self.compounds.values():
            name = compound.findtext("compoundname")
            if compound.get("kind") in KINDS and compound.get("id") not in inner:
                self.add(name.rpartition("::")[0], compound)
            elif compound.get("kind") == "namespace":
                for member in compound.iter("memberdef"):
                    self.add(name, member)

    def add(self, scope, element):
        place = element.find("location")
        header = re.sub(r"^colls/|\.(hpp|cuh|ipp)$", "", place.get("declfile") or place.get("file"))
        self.of_header[header].append((int(place.get("declline") or place.get("line")), scope, element))

    # --- comments

    def inline(self, element):
        """The text of a paragraph as reStructuredText."""
        escape = lambda text: re.sub(r"([*_`|\\])", r"\\\1", text or "")
        out = escape(element.text)
        for child in element:
            inside = text_of(child)
            if child.tag == "computeroutput":
                out += f":cpp:any:`{inside}`\\ " if re.fullmatch(r"(\w+::)+\w+", inside) else f"``{inside}``\\ "
            else:
                out += escape(inside)
            out += escape(child.tail)
        return re.sub(r"\bdocs/(\w+(?:\\_\w+)*)\.md", lambda page: f":doc:`/docs/{page[1]}`".replace("\\", ""), out)

    def blocks(self, element):
        """The lines of a description."""
        lines = []
        for para in element if element is not None else []:
            if para.tag != "para":
                continue
            loose = xml.Element("para")
            loose.text = para.text
            for child in [*para, None]:
                if child is not None and child.tag not in ("itemizedlist", "verbatim", "programlisting"):
                    loose.append(child)
                    continue
                said = re.sub(r"\s*\n\s*", " ", self.inline(loose)).strip()
                lines += [said, ""] if said else []
                if child is None:
                    break
                loose = xml.Element("para")
                loose.text = child.tail
                if child.tag != "itemizedlist":
                    for space in child.iter("sp"):
                        space.text = " "
                    rows = ["".join(row.itertext()) for row in child.iter("codeline")]
                    rows = rows or (child.text or "").strip("\n").split("\n")
                    language = "cpp" if any(re.search("[;{]$", row) for row in rows) else "text"
                    lines += [f".. code-block:: {language}", "", *("   " + row for row in rows), ""]
                else:
                    for item in child:
                        said = [row for row in self.blocks(item) if row]
                        lines += ["* " + " ".join(said), ""]
        return lines

    def description(self, element):
        return self.blocks(element.find("briefdescription")) + self.blocks(element.find("detaileddescription"))

    # --- declarations

    def template(self, element):
        params = element.find("templateparamlist")
        if params is None:
            return ""
        all_params = []
        for param in params:
            name = param.findtext("declname") or ""
            default = f" = {code(text_of(param.find('defval')))}" if param.find("defval") is not None else ""
            all_params.append(code(text_of(param.find("type"))) + (" " + name if name else "") + default)
        return f"template<{', '.join(all_params)}> "

    def signature(self, element, scope):
        kind, name = element.get("kind"), element.findtext("name") or element.findtext("compoundname")
        if scope is not None and "::" not in name:
            name = f"{scope}::{name}"
        kind_of_type = code(text_of(element.find("type")))
        if kind == "function":
            head = "static " * (element.get("static") == "yes" and scope is None)
            head += "explicit " * (element.get("explicit") == "yes" and "explicit" not in kind_of_type)
            args = re.sub(r" *= *(0|default)$", "", code(element.findtext("argsstring")))
            args = re.sub(r" \[\[.*?\]\]| override| final", "", args).replace("=", " = ")
            args = re.sub(r"\{\..*?\}", "{}", args)  # Sphinx does not parse designated initializers
            return f"{self.template(element)}{head}{kind_of_type} {name}{args}".strip()
        if kind == "typedef":
            value = "" if re.search("decltype|detail::", kind_of_type) else f" = {kind_of_type}"
            return f"{self.template(element)}{name}{value}"
        if kind == "variable":
            static = "static " if element.get("static") == "yes" and scope is None else ""
            value = text_of(element.find("initializer"))
            value = f" {value}" if value and len(value) < 30 and "detail" not in value else ""
            name += text_of(element.find("argsstring"))
            return f"{self.template(element)}{static}{kind_of_type} {name}{code(value)}"
        if kind in ("class", "struct"):
            bases = [code(text_of(base)) for base in element.findall("basecompoundref")
                     if base.get("prot") == "public" and "detail" not in text_of(base)]
            return self.template(element) + code(name) + (" : public " + ", public ".join(bases) if bases else "")
        return self.template(element) + code(name)

    def is_shown(self, member, parent):
        name, args = member.findtext("name"), member.findtext("argsstring") or ""
        own = parent.findtext("compoundname").rpartition("::")[2].partition("<")[0]
        if member.get("prot") != "public" or member.get("kind") not in KINDS or name.startswith(("~", "@")) or \
                text_of(member.find("type")).startswith("friend"):
            return False
        if self.description(member):
            return True
        text = self.template(member) + text_of(member.find("type")) + args
        copies = name == own and ("&&" in args or f"const {own} &" in args) and "," not in args
        return not (args.endswith(("=delete", "=default")) or copies or name == "operator=" or "detail::" in text)

    def entry(self, element, scope, indent=""):
        """The directive of one name, with the names inside it."""
        kind = element.get("kind")
        directive = "enum" if kind == "enum" and element.get("strong") != "yes" else KINDS[kind]
        lines = [f".. cpp:{directive}:: {self.signature(element, scope)}", ""]
        lines += ["   " + line for line in self.description(element)]
        for value in element.findall("enumvalue"):
            lines += [f"   .. cpp:enumerator:: {value.findtext('name')}", ""]
            hint = self.hints.get(value.findtext("name")) if element.findtext("name") == "errc" else None
            lines += ["      " + line for line in ([hint, ""] if hint else self.description(value))]
        if kind in ("class", "struct"):
            members = [m for m in element.iter("memberdef") if self.is_shown(m, element)]
            inner = [self.compounds[ref.get("refid")] for ref in element.findall("innerclass")
                     if ref.get("prot") == "public" and ref.get("refid") in self.compounds]
            inner = [compound for compound in inner
                     if any(self.description(each) for each in [compound, *compound.iter("memberdef")])]
            place = lambda member: int(member.find("location").get("line"))
            names = dict.fromkeys(m.findtext("name") for m in sorted(members, key=place) if m.get("kind") == "function")
            if len(names) > 12:
                links = [f":cpp:func:`{name} <{element.findtext('compoundname')}::{name}>`" for name in names
                         if not name.startswith("operator") and not element.findtext("compoundname").endswith(name)]
                lines += ["   " + " ".join(links), ""]
            for group in self.overloads(sorted(members, key=place)):
                lines += self.joined(group, None, "   ")
            for compound in inner:
                lines += self.entry(compound, None, "   ")
        return [indent + line for line in lines]

    def overloads(self, members):
        """Lists of members: one with a comment, and those without one that follow it."""
        groups = []
        for member in members:
            before = groups[-1][0] if groups else None
            follows = before is not None and not self.description(member) and member.get("kind") == "function" \
                and before.get("kind") == "function" \
                and (before.findtext("name") == member.findtext("name") or not self.description(before))
            groups[-1].append(member) if follows else groups.append([member])
        return groups

    def joined(self, group, scope, indent=""):
        lines = self.entry(group[0], scope, indent)
        head = f"{indent}.. cpp:function:: "
        more = [" " * len(head) + self.signature(member, scope) for member in group[1:]]
        return lines[:1] + more + lines[1:]

    # --- pages

    def belongs(self, element):
        """Whether this is a specialisation or a deduction guide."""
        return "<" in element.findtext("compoundname", "") or "->" in element.findtext("argsstring", "")

    def header(self, name):
        """The lines of a header: a section for each name."""
        entries = sorted(self.of_header[name], key=lambda entry: entry[0])
        shown = [(scope, element) for _, scope, element in entries if element.get("kind") in KINDS]
        lines, before = [], None
        for scope in dict.fromkeys(scope for scope, _ in shown):
            members = [element for place, element in shown if place == scope and
                       (self.description(element) or scope.startswith("colls") and not self.belongs(element))]
            for group in self.overloads(members):
                title = group[0].findtext("compoundname") or f"{scope}::{group[0].findtext('name')}"
                title = title.removeprefix("colls::")
                if title != before and self.description(group[0]):
                    lines += [title.replace("_", "\\_"), "-" * (2 * len(title)), ""]
                before = title
                lines += self.joined(group, scope)
        return lines

    def write(self, target):
        """Writes the pages."""
        for page, (title, introduction, headers) in PAGES.items():
            body = []
            for header in headers.split() or sorted(filter(is_public, self.of_header.keys() - named())):
                body += self.header(header)
            if body:
                lines = [title, "=" * len(title), "", introduction, "", *body, ""]
                (target / f"{page}.rst").write_text("\n".join(lines))
