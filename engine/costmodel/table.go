package costmodel

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"glimpse/eviction"
	"glimpse/internal/tables"
)

// WriteTable writes what policies cost for each run, as a Markdown table with a line per run and policy,
// on a terminal as one that fits it:
// the theoretical columns of LookaheadKV (arXiv:2603.10899), tables 3 and 15, by the first
// model's conventions; the times again by the others'; and what decoding costs by
// the last.
func WriteTable(w io.Writer, models []Model, policies []*eviction.Configured, runs []Run) error {
	last := models[len(models)-1]
	head := []string{"context", "budget", "policy", "TFLOP", "GB", "TTFT ms", "overhead ms"}
	for _, m := range models[1:] {
		head = append(head, m.as.Name+": TFLOP", "TTFT ms", "overhead ms")
	}
	head = append(head, "step ms", "tok/s", "held MB", "peak MB")
	lines := [][]string{head}
	for _, r := range runs {
		for _, p := range policies {
			e := models[0].Estimate(p, r)
			tera, giga := models[0].units()
			line := []string{fmt.Sprint(r.Tokens), fmt.Sprint(r.Budget), p.Name,
				figure(e.TTFT.FLOPs / tera), figure(e.TTFT.Bytes / giga), figure(1e3 * e.TTFT.Seconds), fmt.Sprintf("%.2f", 1e3*e.Overhead)}
			for _, m := range models[1:] {
				tera, _ := m.units()
				e = m.Estimate(p, r)
				line = append(line, figure(e.TTFT.FLOPs/tera), figure(1e3*e.TTFT.Seconds), fmt.Sprintf("%.2f", 1e3*e.Overhead))
			}
			e = last.Estimate(p, r)
			lines = append(lines, append(line, fmt.Sprintf("%.3g", 1e3*e.Step.Seconds), figure(1/e.Step.Seconds), figure(e.HeldBytes/1e6), figure(e.PeakBytes/1e6)))
		}
	}
	columns := tables.Columns(w)
	if columns == 0 {
		_, err := io.WriteString(w, markdown(lines)+"\n"+notes(models))
		return err
	}
	if err := onTerminal(lines).Write(w, columns); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n"+tables.Wrap(notes(models), columns))
	return err
}

// onTerminal is the table for a window that may have no room for all columns: what decoding
// costs and the first conventions stay longest.
func onTerminal(lines [][]string) *tables.Table {
	first := []string{"context", "budget", "policy", "TTFT ms", "overhead ms", "tok/s", "held MB", "peak MB", "step ms", "TFLOP", "GB"}
	var columns []tables.Column
	seen := make(map[string]bool)
	of := "" // whose conventions a column follows
	for _, head := range lines[0] {
		if name, _, ok := strings.Cut(head, ": "); ok {
			of = name
		}
		at := slices.Index(first, head)
		switch {
		case at >= 0 && !seen[head]:
			columns = append(columns, tables.Column{Head: head, Right: at != 2, Optional: max(0, at-2)})
		case strings.Contains(head, ": "):
			columns = append(columns, tables.Column{Head: head, Right: true, Optional: len(first)})
		default:
			columns = append(columns, tables.Column{Head: of + ": " + head, Right: true, Optional: len(first)})
		}
		seen[head] = true
	}
	t := tables.New(columns...)
	for _, line := range lines[1:] {
		t.Add(line...)
	}
	return t
}

// units are what tera and giga stand for.
func (m Model) units() (tera, giga float64) {
	if m.as.Runtime {
		return 1e12, 1e9
	}
	return 1 << 40, 1 << 30
}

// figure is a number with three digits or all those before the point.
func figure(v float64) string {
	if v >= 100 || v == 0 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

// notes say what the columns are.
func notes(models []Model) string {
	chip := models[0].chip
	tera, giga := models[0].units()
	out := fmt.Sprintf("Chip %s: %.4g TFLOP/s and %.4g GB/s, of which %.0f%% and %.0f%% are reached.", chip.Name,
		chip.FLOPS/tera, chip.Bandwidth/giga, 100*chip.ComputeShare, 100*chip.MemoryShare)
	for _, m := range models {
		switch {
		case m.as.Runtime:
			out += " Runtime: what this program computes and moves, tera and giga of 10¹² and 10⁹."
		case m.as.Causal:
			out += " Causal: as the paper, with the attention that a causal mask leaves."
		default:
			out += " Paper: as LookaheadKV (arXiv:2603.10899), tables 3 and 15: attention without a mask, no LM head, tera and giga of 2⁴⁰ and 2³⁰."
		}
	}
	return out + "\n"
}

// markdown is a table whose first line is its head; numbers are on the right.
func markdown(lines [][]string) string {
	widths := make([]int, len(lines[0]))
	for _, line := range lines {
		for i, cell := range line {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var out strings.Builder
	for n, line := range lines {
		for i, cell := range line {
			fmt.Fprintf(&out, "| %*s ", widths[i], cell)
		}
		out.WriteString("|\n")
		if n == 0 {
			for _, width := range widths {
				out.WriteString("|" + strings.Repeat("-", width+1) + ":")
			}
			out.WriteString("|\n")
		}
	}
	return out.String()
}
