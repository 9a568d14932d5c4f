package report

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"glimpse/evaluation"
	"glimpse/eviction"
)

func table(t *testing.T, rows []evaluation.Row, opts TableOptions) string {
	t.Helper()
	var out bytes.Buffer
	if err := WriteTable(&out, rows, opts); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

func TestTableGoldens(t *testing.T) {
	rows := sampleRows(nineTasks, []int{16, 128}, sixPolicies)
	golden(t, "table.txt", []byte(table(t, rows, TableOptions{})))
	golden(t, "table.md", []byte(table(t, rows, TableOptions{Markdown: true})))
}

// TestTextFitsTerminal: no line is wider than the window, no head is split in a word, and what
// is not shown is named.
func TestTextFitsTerminal(t *testing.T) {
	rows := sampleRows(nineTasks, []int{16, 100000}, sixPolicies)
	for i := range rows {
		rows[i].FullBytes *= 100
		rows[i].KeptBytes *= 100 // seven digits of KiB
	}
	words := "policy kept mean ±se TTFT decode"
	for _, task := range nineTasks {
		words += " " + task + " " + strings.NewReplacer("_", "_ ", "-", "- ").Replace(task)
	}
	for columns, want := range map[int][]string{
		60:  {"policy", "mean ±se", "(not shown, for want of room: τ, rec %, hit %"},
		80:  {"policy", "mean ±se", "(not shown, for want of room: τ, rec %, hit %"},
		120: {"policy", "mean ±se", "kept", "TTFT", "multikey", "(not shown, for want of room: τ, rec %, hit %"},
		160: {"policy", "mean ±se", "kept", "TTFT", "multikey", "decode"},
	} {
		out := table(t, rows, TableOptions{Columns: columns})
		for i, line := range strings.Split(out, "\n") {
			if n := utf8.RuneCountInString(line); n >= columns {
				t.Errorf("%d columns: line %d has %d: %s", columns, i+1, n, line)
			}
		}
		for _, text := range want {
			if !strings.Contains(out, text) {
				t.Errorf("%d columns: no %q in\n%s", columns, text, out)
			}
		}
		if (columns == 160) == strings.Contains(out, "want of room") {
			t.Errorf("%d columns:\n%s", columns, out)
		}
		_, block, _ := strings.Cut(out, "Budget 16,")
		_, head, _ := strings.Cut(block, "\n\n")
		head, _, _ = strings.Cut(head, "─")
		for word := range strings.FieldsSeq(head) {
			if !slices.Contains(append(strings.Fields(words), "%", "KiB", "+%", "tok/s", "hit", "rec", "τ"), word) {
				t.Errorf("%d columns: %q is no word of a head", columns, word)
			}
		}
	}
}

// lines returns the first word of every line that starts with one of the words.
func lines(table string, words ...string) (found []string) {
	for _, line := range strings.Split(table, "\n") {
		if first, _, _ := strings.Cut(line, " "); slices.Contains(words, first) {
			found = append(found, first)
		}
	}
	return found
}

func TestTableOrder(t *testing.T) {
	rows := sampleRows(nineTasks[:2], []int{64}, []string{"snapkv", "h2o", "tova"}) // in falling quality
	cases := []struct {
		name  string
		order []string
		want  []string
	}{
		{"best first", nil, []string{"full", "snapkv", "h2o", "tova"}},
		{"given", []string{"tova", "unknown", "h2o", "snapkv"}, []string{"full", "tova", "h2o", "snapkv"}},
		{"given in part", []string{"tova"}, []string{"full", "tova", "snapkv", "h2o"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := lines(table(t, rows, TableOptions{Order: c.order}), c.want...); !slices.Equal(got, c.want) {
				t.Errorf("order %v, want %v", got, c.want)
			}
		})
	}
}

func TestPolicyWithoutATaskHasNoMeanAndStandsLast(t *testing.T) {
	rows := sampleRows([]string{"a", "b"}, []int{64}, []string{"best", "worst"})
	rows = slices.DeleteFunc(rows, func(r evaluation.Row) bool { return r.Policy == "best" && r.Task == "b" })
	out := table(t, rows, TableOptions{Markdown: true})
	if i, j := strings.Index(out, "| best "), strings.Index(out, "| worst "); i < j {
		t.Errorf("the incomplete policy does not stand last:\n%s", out)
	}
	if !strings.Contains(out, "| best | 8") || !strings.Contains(out, "| – | – |") {
		t.Errorf("want the measured task, and no value for the other task and the mean:\n%s", out)
	}
}

// The full cache is averaged over the tasks of each block, not over all it has.
func TestReferenceIsAveragedOverTheBlocksTasks(t *testing.T) {
	row := func(policy string, budget int, task string, accuracy float64) evaluation.Row {
		return evaluation.Row{Policy: policy, Budget: eviction.Pairs(budget), Task: task, Tokens: 8, Samples: 4, Score: &accuracy, StdErr: new(0.0)}
	}
	out := table(t, []evaluation.Row{row("full", 0, "a", 1), row("full", 0, "b", 0.5), row("tova", 64, "a", 0.25), row("tova", 32, "b", 0.75)},
		TableOptions{Markdown: true})
	for _, want := range []string{"| full | 100 | 100.0 ±0.0 |", "| full | 50 | 50.0 ±0.0 |"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
	if strings.Contains(out, "Full cache") {
		t.Errorf("the full cache has a block of its own:\n%s", out)
	}
}

func TestTableTitles(t *testing.T) {
	row := func(policy string, budget int, task string, tokens int) evaluation.Row {
		return evaluation.Row{Policy: policy, Budget: eviction.Pairs(budget), Task: task, Tokens: tokens, Samples: 4, Score: new(0.5)}
	}
	cases := []struct {
		name string
		rows []evaluation.Row
		want []string
	}{
		{"one length", []evaluation.Row{row("full", 0, "a", 512), row("tova", 64, "a", 512), row("tova", 32, "a", 512)},
			[]string{"Budget 32, prompts of 512 tokens", "Budget 64, prompts of 512 tokens"}},
		{"length unknown", []evaluation.Row{row("tova", 64, "a", 0)}, []string{"Budget 64"}},
		{"a length for every task", []evaluation.Row{row("tova", 64, "a", 100), row("tova", 64, "b", 200)}, []string{"Budget 64"}},
		{"several lengths", []evaluation.Row{row("tova", 64, "a", 1024), row("full", 0, "a", 512), row("tova", 64, "a", 512)},
			[]string{"Budget 64, prompts of 512 tokens", "Budget 64, prompts of 1024 tokens"}},
		{"full cache only", []evaluation.Row{row("full", 0, "a", 512)}, []string{"Full cache, prompts of 512 tokens"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var got []string
			for _, line := range strings.Split(table(t, c.rows, TableOptions{}), "\n") {
				if strings.HasPrefix(line, "Budget ") || strings.HasPrefix(line, "Full cache") {
					got = append(got, line)
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("titles %q, want %q", got, c.want)
			}
		})
	}
}

func TestColumnsOfAbsentMeasuresAreLeftOut(t *testing.T) {
	rows := []evaluation.Row{{Policy: "tova", Budget: eviction.Pairs(8), Task: "a", Samples: 4, Score: new(0.5), StdErr: new(0.25), KeptBytes: 512, FullBytes: 2048}}
	out := table(t, rows, TableOptions{Markdown: true})
	if want := "| policy | a | mean ±se | kept KiB | kept % |\n"; !strings.Contains(out, want) {
		t.Errorf("no head %q in\n%s", want, out)
	}
	if want := "| tova | 50 | 50.0 ±25.0 | 0.5 | 25.0 |\n"; !strings.Contains(out, want) {
		t.Errorf("no line %q in\n%s", want, out)
	}
	for _, absentNote := range []string{"hit:", "TTFT:", "decode:"} {
		if strings.Contains(out, absentNote) {
			t.Errorf("a note on %q, which is not there:\n%s", absentNote, out)
		}
	}
}

func TestMarkdownEscapesNames(t *testing.T) {
	rows := []evaluation.Row{{Policy: "a|b", Adapter: `<x>\`, Budget: eviction.Pairs(8), Task: "one_*task*", Samples: 4, Score: new(0.5)}}
	out := table(t, rows, TableOptions{Markdown: true})
	for _, want := range []string{`| a\|b/&lt;x>\\ |`, `| one\_\*task\* |`} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s", want, out)
		}
	}
}

// TestTableSaysWhatFailed: a mean over one of four samples is not one over all.
func TestTableSaysWhatFailed(t *testing.T) {
	rows := []evaluation.Row{
		{Policy: "a", Budget: eviction.Pairs(8), Task: "t", Samples: 3, Score: new(0.5)},
		{Policy: "b", Budget: eviction.Pairs(8), Task: "t", Samples: 1, Score: new(0.5), Failed: 3},
	}
	out := strings.Join(strings.Fields(table(t, rows, TableOptions{})), " ")
	if want := "(1–3 samples each, up to 3 of 4 failed and count nowhere)"; !strings.Contains(out, want) {
		t.Errorf("no %q in\n%s", want, out)
	}
	if out := table(t, rows[:1], TableOptions{}); strings.Contains(out, "failed") {
		t.Errorf("nothing failed:\n%s", out)
	}
}

func TestTableOfNothingIsAnError(t *testing.T) {
	if err := WriteTable(new(bytes.Buffer), nil, TableOptions{}); err == nil || !strings.Contains(err.Error(), "no rows") {
		t.Errorf("error %v, want one about no rows", err)
	}
}

func TestOverviewOnlyWhereBudgetsCompare(t *testing.T) {
	const title = "mean over"
	several := sampleRows(nineTasks, []int{16, 128}, sixPolicies)
	if out := table(t, several, TableOptions{}); !strings.Contains(out, title) {
		t.Error("two budgets: no overview")
	}
	if out := table(t, sampleRows(nineTasks, []int{16}, sixPolicies), TableOptions{}); strings.Contains(out, title) {
		t.Error("one budget: an overview of one column")
	}
	incomplete := slices.DeleteFunc(slices.Clone(several), func(r evaluation.Row) bool { return r.Policy == "h2o" && r.Task == "copy" })
	if out := table(t, incomplete, TableOptions{}); strings.Contains(out, title) {
		t.Error("a policy lacks a task: its mean is compared with those of all tasks")
	}
	ordered := table(t, several, TableOptions{Order: []string{"h2o", "snapkv"}})
	overview, _, _ := strings.Cut(ordered, "Budget")
	if got, want := lines(overview, "full", "h2o", "snapkv", "laq"), []string{"full", "h2o", "snapkv", "laq"}; !slices.Equal(got, want) {
		t.Errorf("lines of the overview: got %v, want %v", got, want)
	}
}
