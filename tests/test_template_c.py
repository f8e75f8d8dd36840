"""The template in C, with a decoder in C behind it: compiled, run, and judged by the laws."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from logitproof.properties import cli
from logitproof.properties.adapters.template_command import text_of

COMPILER = next((name for name in ("cc", "gcc", "clang") if shutil.which(name)), None)
OPTIONS = ["-std=c99", "-O2", "-ffp-contract=off", "-Wall", "-Wextra", "-Werror", "-pedantic"]
TEMPLATE = text_of("program-c")
LINES = 160  # that say something: the reader is the template's own
Output = pytest.CaptureFixture[str]

needs_a_compiler = pytest.mark.skipif(COMPILER is None, reason="no C compiler is installed")

# A decoder written for this file from the equations, as its owner would.
PORT = r"""
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct { int V, D, H, F, L, C; double rope_base, rms_epsilon; } Config;
const double *weight(const char *name);
static Config c;

void port_load(Config config) { c = config; }

static const double *block(int layer, const char *name) {
    char full[96];
    sprintf(full, "blocks.%d.%s", layer, name);
    return weight(full);
}

static double *rows(int n, int width) { return calloc((size_t)(n * width) + 1, sizeof(double)); }

static double *times(const double *x, const double *w, int n, int in, int out) {
    double *y = rows(n, out);
    for (int t = 0; t < n; t++)
        for (int o = 0; o < out; o++)
            for (int i = 0; i < in; i++) y[t * out + o] += x[t * in + i] * w[i * out + o];
    return y;
}

static double *normed(const double *x, const double *gain, int n) {
    double *y = rows(n, c.D);
    for (int t = 0; t < n; t++) {
        double s = 0.0;
        for (int i = 0; i < c.D; i++) s += x[t * c.D + i] * x[t * c.D + i];
        s = sqrt(s / c.D + c.rms_epsilon);
        for (int i = 0; i < c.D; i++) y[t * c.D + i] = gain[i] * (x[t * c.D + i] / s);
    }
    return y;
}

static void turn(double *x, const int *positions, int n) {
    int d = c.D / c.H;
    for (int t = 0; t < n; t++)
        for (int i = 0; i < c.D; i += 2) {
            double a = positions[t] * pow(c.rope_base, -(double)(i % d) / d);
            int j = i, k = i + 1;
            double p = x[t * c.D + j], q = x[t * c.D + k];
            x[t * c.D + j] = p * cos(a) - q * sin(a);
            x[t * c.D + k] = p * sin(a) + q * cos(a);
        }
}

static double *mixed(const double *q, const double *k, const double *v, const int *starts, int n) {
    int d = c.D / c.H;
    double *mix = rows(n, c.D), *e = rows(n, 1);
    for (int t = 0; t < n; t++)
        for (int h = 0; h < c.H; h++) {
            double most = -INFINITY, sum = 0.0;
            for (int s = starts[t]; s <= t; s++) {
                e[s] = 0.0;
                for (int i = h * d; i < (h + 1) * d; i++) e[s] += q[t * c.D + i] * k[s * c.D + i];
                e[s] /= sqrt(d);
                most = e[s] > most ? e[s] : most;
            }
            for (int s = starts[t]; s <= t; s++) sum += e[s] = exp(e[s] - most);
            for (int s = starts[t]; s <= t; s++)
                for (int i = h * d; i < (h + 1) * d; i++)
                    mix[t * c.D + i] += e[s] / sum * v[s * c.D + i];
        }
    free(e);
    return mix;
}

static void add(double *x, double *branch, int n) {
    for (int i = 0; i < n * c.D; i++) x[i] += branch[i];
    free(branch);
}

static void row(int n, const int *ids, const int *starts, const int *positions, double *logits) {
    const double *table = weight("token_embedding.weight");
    double *x = rows(n, c.D);
    for (int t = 0; t < n; t++) memcpy(x + t * c.D, table + ids[t] * c.D, c.D * sizeof(double));
    for (int layer = 0; layer < c.L; layer++) {
        double *a = normed(x, block(layer, "attention_norm.gain"), n);
        double *q = times(a, block(layer, "attention.query.weight"), n, c.D, c.D);
        double *k = times(a, block(layer, "attention.key.weight"), n, c.D, c.D);
        double *v = times(a, block(layer, "attention.value.weight"), n, c.D, c.D);
        turn(q, positions, n), turn(k, positions, n);
        double *mix = mixed(q, k, v, starts, n);
        add(x, times(mix, block(layer, "attention.output.weight"), n, c.D, c.D), n);
        double *f = normed(x, block(layer, "ffn_norm.gain"), n);
        double *gate = times(f, block(layer, "ffn.gate.weight"), n, c.D, c.F);
        double *up = times(f, block(layer, "ffn.up.weight"), n, c.D, c.F);
        for (int i = 0; i < n * c.F; i++) gate[i] = gate[i] / (1.0 + exp(-gate[i])) * up[i];
        add(x, times(gate, block(layer, "ffn.down.weight"), n, c.F, c.D), n);
        free(a), free(q), free(k), free(v), free(mix), free(f), free(gate), free(up);
    }
    double *hidden = normed(x, weight("final_norm.gain"), n);
    for (int t = 0; t < n; t++)
        for (int o = 0; o < c.V; o++)
            for (int i = 0; i < c.D; i++)
                logits[t * c.V + o] += hidden[t * c.D + i] * table[o * c.D + i];
    free(x), free(hidden);
}

const char *port_logits(int B, int T, const int *ids, const int *lengths, const int *starts,
                        const int *positions, double *logits) {
    memset(logits, 0, sizeof(double) * B * T * c.V);
    for (int b = 0; b < B; b++)
        row(lengths[b], ids + b * T, starts + b * T, positions + b * T, logits + b * T * c.V);
    for (int i = 0; i < B * T * c.V; i++) if (!isfinite(logits[i])) return "a logit is not finite";
    return NULL;
}
"""
ADJACENT = "j = i, k = i + 1;"
HALVES = "j = i / d * d + i % d / 2, k = j + d / 2;"


def compiled(folder: Path, port: str) -> str:
    """The name of the decoder under test."""
    (folder / "mine.c").write_text(TEMPLATE)
    (folder / "port.c").write_text(port)
    assert COMPILER is not None
    sources = [str(folder / name) for name in ("mine.c", "port.c")]
    program = str(folder / "mine")
    subprocess.run([COMPILER, *OPTIONS, *sources, "-lm", "-o", program], check=True)
    return f"exec:{program}"


def verify(decoder: str, folder: Path, *arguments: str) -> int:
    files = ["--json", str(folder / "facts.json"), "--replays", str(folder)]
    return cli.main(["verify", "--decoder", decoder, *files, *arguments])


def test_the_template_is_short() -> None:
    assert sum(1 for line in TEMPLATE.splitlines() if line.strip()) <= LINES


@needs_a_compiler
def test_a_right_decoder_in_c_holds_at_its_levels(tmp_path: Path, capsys: Output) -> None:
    assert verify(compiled(tmp_path, PORT), tmp_path, "--law", "[dpt]*.*") == 0
    assert capsys.readouterr().err == ""
    levels = json.loads((tmp_path / "facts.json").read_text())["levels"]
    held = dict.fromkeys(("forward", "padded", "packed"), "holds")
    assert levels == {**levels, **held, "loss": "not claimed", "decode": "not claimed"}


@needs_a_compiler
def test_another_convention_in_c_is_found_and_named(tmp_path: Path, capsys: Output) -> None:
    decoder = compiled(tmp_path, PORT.replace(ADJACENT, HALVES))
    assert verify(decoder, tmp_path, "--law", "truth.logits") == 1
    assert "Conventions: It follows pairs: halves, not adjacent" in capsys.readouterr().out


@needs_a_compiler
def test_a_refusal_in_c_is_one(tmp_path: Path, capsys: Output) -> None:
    refusing = PORT.replace("return NULL;\n}", 'return "not today";\n}')
    assert verify(compiled(tmp_path, refusing), tmp_path, "--law", "truth.logits") == 1
    assert "raised ValueError: not today" in " ".join(capsys.readouterr().out.split())


@needs_a_compiler
def test_what_is_no_request_ends_the_program(tmp_path: Path) -> None:
    program = compiled(tmp_path, PORT).removeprefix("exec:")
    done = subprocess.run([program], input="{}\n", capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "mine: id\n")
