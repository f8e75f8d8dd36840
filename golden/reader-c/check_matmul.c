/* Reads operations.txt and compares the bits of every product of matrices in it.
 *
 *   cc -std=c99 -O2 -ffp-contract=off -o check_matmul check_matmul.c
 *   ./check_matmul operations.txt
 *
 * Exit 0: all bits are equal. 1: a bit differs; the first place is named. 2: the file is not of
 * its format. The head of operations.txt explains the format; only its kind f64 occurs here.
 *
 * The rule: s = +0; s = s + a[r,k] * b[k,c] with k ascending, a product and a sum rounded each.
 * -ffp-contract=off because a compiler may otherwise fuse both into one rounding.
 */

#include <float.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if FLT_EVAL_METHOD != 0
#error "an expression of doubles must be evaluated in double"
#endif

#define RANKS 8

typedef struct {
    int rank;
    size_t sizes[RANKS];
    size_t count;
    double *cells;
} Array;

static size_t line_number;
static char identifier[256];

static void fail(const char *what)
{
    printf("line %zu: %s\n", line_number, what);
    exit(2);
}

static void *allocate(size_t count, size_t size)
{
    void *found = calloc(count ? count : 1, size);
    if (!found)
        fail("not enough memory");
    return found;
}

/* The next line without its end, valid until the next call; NULL at the end of the file. */
static char *next_line(FILE *file)
{
    static char *text;
    static size_t room;
    size_t used = 0;
    int c;
    while ((c = getc(file)) != EOF && c != '\n') {
        if (used + 1 >= room && !(text = realloc(text, room = room ? 2 * room : 4096)))
            fail("not enough memory");
        text[used++] = (char)c;
    }
    if (c == EOF) {
        if (used)
            fail("the last line has no end");
        return NULL;
    }
    if (!text)
        text = allocate(room = 4096, 1);
    text[used] = '\0';
    line_number++;
    return text;
}

/* What follows a key and a space, or NULL where the line has another key. */
static char *after(char *line, const char *key)
{
    size_t n = strlen(key);
    return strncmp(line, key, n) || line[n] != ' ' ? NULL : line + n + 1;
}

/* The next word, cut out of the line; the empty string where there is none. */
static char *word(char **rest)
{
    char *start = *rest, *space = strchr(start, ' ');
    *rest = space ? space + 1 : start + strlen(start);
    if (space)
        *space = '\0';
    return start;
}

static size_t number(char **rest)
{
    char *text = word(rest), *end;
    unsigned long long found = strtoull(text, &end, 10);
    if (*text < '0' || *text > '9' || *end || found > 1000000)
        fail("a size is wanted");
    return (size_t)found;
}

static uint64_t bits_of(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static double cell(char **rest)
{
    char *text = word(rest);
    uint64_t bits;
    double value;
    if (strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16)
        fail("16 hex digits are wanted");
    bits = strtoull(text, NULL, 16);
    memcpy(&value, &bits, sizeof value);
    return value;
}

static Array array(char *rest)
{
    Array found = {0};
    size_t i;
    if (strcmp(word(&rest), "f64"))
        fail("the kind f64 is wanted");
    found.rank = (int)number(&rest);
    if (found.rank > RANKS)
        fail("the rank is too high");
    found.count = 1;
    for (i = 0; i < (size_t)found.rank; i++) {
        found.sizes[i] = number(&rest);
        if (found.sizes[i] && found.count > 100000000 / found.sizes[i])
            fail("the array is too large");
        found.count *= found.sizes[i];
    }
    found.cells = allocate(found.count, sizeof *found.cells);
    for (i = 0; i < found.count; i++)
        found.cells[i] = cell(&rest);
    if (*rest)
        fail("more cells than the shape has");
    return found;
}

/* The size of a leading axis of the result, counted from the right; 1 where the array has none. */
static size_t lead(const Array *of, int from_right)
{
    return from_right <= of->rank ? of->sizes[of->rank - from_right] : 1;
}

/* Where the matrix of an operand begins that belongs to a lane of the result. */
static size_t offset(const Array *of, const Array *result, size_t lane)
{
    size_t step = of->sizes[of->rank - 1] * of->sizes[of->rank - 2], at = 0;
    int i;
    for (i = 3; i <= result->rank; i++) {
        size_t own = lead(of, i), index = lane % lead(result, i);
        lane /= lead(result, i);
        at += step * (own == 1 ? 0 : index);
        step *= own;
    }
    return at;
}

static void check_shapes(const Array *a, const Array *b, const Array *y)
{
    int i, rank = a->rank > b->rank ? a->rank : b->rank;
    if (a->rank < 2 || b->rank < 2 || y->rank != rank || lead(a, 1) != lead(b, 2) ||
        lead(y, 2) != lead(a, 2) || lead(y, 1) != lead(b, 1))
        fail("the shapes are not those of a product");
    for (i = 3; i <= rank; i++) {
        size_t p = lead(a, i), q = lead(b, i);
        if ((p != q && p != 1 && q != 1) || lead(y, i) != (p == 1 ? q : p))
            fail("the shapes are not those of a product");
    }
}

/* The number of words compared; ends the program at the first that differs. */
static size_t compare(const Array *a, const Array *b, const Array *y)
{
    size_t R, K, C, i, k;
    check_shapes(a, b, y);
    R = lead(a, 2), K = lead(a, 1), C = lead(b, 1);
    for (i = 0; i < y->count; i++) {
        size_t lane = i / (R * C), r = i / C % R, c = i % C;
        const double *left = a->cells + offset(a, y, lane) + r * K;
        const double *right = b->cells + offset(b, y, lane) + c;
        double s = 0.0;
        for (k = 0; k < K; k++) {
            double product = left[k] * right[k * C];
            s = s + product;
        }
        if (bits_of(s) != bits_of(y->cells[i])) {
            printf("%s: value, word %zu: the file has %016" PRIx64 ", computed %016" PRIx64 "\n",
                   identifier, i, bits_of(y->cells[i]), bits_of(s));
            exit(1);
        }
    }
    return y->count;
}

/* Whether a line within a case is of the format, by its key. */
static int is_known(char *line)
{
    static const char *const keys[] = {"op", "strength", "argument", "operand", "upstream", "value",
                                       "contribution", "true-value", "true-contribution",
                                       "bound-value", "bound-contribution", "ulps"};
    size_t i;
    for (i = 0; i < sizeof keys / sizeof *keys; i++)
        if (after(line, keys[i]))
            return 1;
    return 0;
}

/* The lines of one case, up to its end; the words compared, or -1 where it is not ours. */
static long block(FILE *file)
{
    Array operands[2] = {{0}}, value = {0};
    int given = 0, ours = 0, is_exact = 0, has_value = 0;
    long words = -1;
    char *line, *rest;
    while ((line = next_line(file)) && strcmp(line, "end")) {
        if (after(line, "case") || after(line, "cases"))
            fail("the case before has no end");
        if (!is_known(line))
            fail("an unknown key");
        if ((rest = after(line, "op")))
            ours = !strcmp(rest, "matmul");
        else if ((rest = after(line, "strength")))
            is_exact = !strcmp(rest, "exact");
        else if (ours && (rest = after(line, "operand"))) {
            if (given == 2)
                fail("a product has two operands");
            operands[given++] = array(rest);
        } else if (ours && (rest = after(line, "value"))) {
            if (has_value++)
                fail("the value is given twice");
            value = array(rest);
        }
    }
    if (!line)
        fail("the file ends inside a case");
    if (ours && is_exact && !has_value)
        fail("an exact product has a value");
    if (has_value) {
        if (given != 2)
            fail("a product has two operands");
        words = (long)compare(&operands[0], &operands[1], &value);
    }
    free(operands[0].cells);
    free(operands[1].cells);
    free(value.cells);
    return words;
}

int main(int count, char **arguments)
{
    size_t cases = 0, compared = 0, words = 0;
    FILE *file = count == 2 ? fopen(arguments[1], "rb") : NULL;
    char *line, *rest = NULL;
    if (!file) {
        printf("usage: %s operations.txt, a file that can be read\n", arguments[0]);
        return 2;
    }
    if (!(line = next_line(file)) || strcmp(line, "# logitproof-operations-v1"))
        fail("not a file of logitproof-operations-v1");
    while ((line = next_line(file)) && !(rest = after(line, "cases"))) {
        long found;
        if (*line == '#')
            continue;
        if (!(rest = after(line, "case")) || strlen(rest) >= sizeof identifier)
            fail("a case is wanted");
        strcpy(identifier, rest);
        cases++;
        if ((found = block(file)) >= 0) {
            compared++;
            words += (size_t)found;
        }
    }
    if (!line)
        fail("the file is cut off: its last line says how many cases it has");
    if (number(&rest) != cases || *rest || next_line(file))
        fail("the number of cases is another");
    printf("%zu of %zu cases are products with exact values: %zu words compared, all equal\n", compared,
           cases, words);
    return compared ? 0 : 2;
}
