package report

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"glimpse/internal/listing"
	"glimpse/internal/printable"
)

// WriteMarkdown writes what WriteHTML does, but for the charts, in the Markdown of GitHub.
func (r *Report) WriteMarkdown(w io.Writer) error {
	m := &markdown{escapes: markdownEscapes}
	m.heading(1, r.Title)
	for _, f := range r.Facts {
		m.printf("- %s: %s\n", m.escape(f.Name), m.escape(f.Value))
	}
	m.printf("\n")
	for _, n := range r.Notices {
		m.printf("> %s\n\n", m.escape(n))
	}
	if len(r.Summary) > 0 {
		m.heading(2, "Summary")
		m.tabs(r.Summary)
	}
	for _, s := range r.Sections {
		m.section(s, r.Samples)
	}
	m.heading(2, "Tasks")
	m.table(r.Tasks)
	m.heading(2, "Policies")
	m.table(r.Policies)
	m.heading(2, "Runs")
	for _, run := range r.Runs {
		m.heading(3, run.Path)
		for _, f := range run.Facts {
			m.printf("- %s: %s\n", m.escape(f.Name), m.escape(f.Value))
		}
		m.printf("\nThe same again:\n\n")
		m.codeBlock(run.Command)
		m.printf("config.yaml:\n\n")
		m.codeBlock(run.Config)
	}
	m.printf("Made by evict report")
	if r.Version != "" {
		m.printf(", %s", m.escape(r.Version))
	}
	m.printf(".\n")
	_, err := io.WriteString(w, m.String())
	return err
}

// markdown is a document that is written.
type markdown struct {
	strings.Builder
	escapes *strings.Replacer // of all text but code
}

func (m *markdown) printf(format string, args ...any) { fmt.Fprintf(m, format, args...) }

func (m *markdown) heading(level int, text string) {
	m.printf("%s %s\n\n", strings.Repeat("#", level), m.escape(text))
}

func (m *markdown) section(s *Section, samples int) {
	m.heading(2, s.Title)
	m.printf("%s\n\n", m.escape(s.Intro))
	m.heading(3, "Overview")
	m.table(s.Overview)
	m.heading(3, "Scores and costs")
	m.tabs(s.Scores)
	if len(s.Groups) > 0 {
		m.heading(3, "Groups")
		m.tabs(s.Groups)
	}
	if len(s.Heat) > 0 {
		m.heading(3, "Length and depth")
		m.tabs(s.heatNumbers)
	}
	if len(s.Tests) > 0 {
		m.heading(3, "Intervals and tests")
		m.tabs(s.Tests)
	}
	if len(s.Measures) > 0 {
		m.heading(3, "Other measures")
		for _, t := range s.Measures {
			m.table(t)
		}
	}
	if len(s.Answers) == 0 {
		return
	}
	m.heading(3, "Answers")
	m.printf("The first samples of every task, at most %d, in their order; equal answers stand together.\n\n", samples)
	for _, task := range s.Answers {
		for _, sample := range task.Samples {
			m.sampleAnswers(task.Task, sample)
		}
	}
}

func (m *markdown) tabs(tabs []Tab) {
	for _, t := range tabs {
		m.heading(4, t.Title())
		if t.Note != "" {
			m.printf("%s\n\n", m.escape(t.Note))
		}
		for _, table := range []*Table{t.Table, t.More} {
			if table != nil {
				m.table(table)
			}
		}
	}
}

// table leaves out columns that are drawings.
func (m *markdown) table(t *Table) {
	if t.Caption != "" {
		m.printf("**%s**\n\n", m.escape(t.Caption))
	}
	shown := func(i int) bool { return t.Heads[i].Text != "" }
	var rule strings.Builder
	for i, h := range t.Heads {
		if !shown(i) {
			continue
		}
		text := m.escape(h.Text)
		if h.Unit != "" {
			text += " (" + m.escape(h.Unit) + ")"
		}
		m.printf("| %s ", text)
		if h.Left {
			rule.WriteString("|:---")
		} else {
			rule.WriteString("|---:")
		}
	}
	m.printf("|\n%s|\n", rule.String())
	for _, l := range t.Lines {
		for i, c := range l.Cells {
			if shown(i) {
				m.printf("| %s ", m.cellText(c))
			}
		}
		m.printf("|\n")
	}
	m.printf("\n")
	if t.Note != "" {
		m.printf("%s\n\n", m.escape(strings.ReplaceAll(t.Note, "underlined", "italic")))
	}
}

func (m *markdown) cellText(c Cell) string {
	text := m.escape(c.Text)
	switch c.Mark {
	case Best:
		text = "**" + text + "**"
	case Second:
		text = "*" + text + "*"
	}
	if c.Error != "" {
		text += " ±" + m.escape(c.Error)
	}
	if c.Near {
		text += " ≈"
	}
	return text
}

func (m *markdown) sampleAnswers(task string, s SampleAnswers) {
	title := fmt.Sprintf("%s, %s", task, s.ID)
	m.heading(4, title)
	m.printf("%s", m.escape(s.About))
	if s.Full != "" {
		m.printf("; full cache %s %%", m.escape(s.Full))
	}
	m.printf("\n\n")
	if s.Prompt != "" {
		m.codeBlock(s.Prompt)
	}
	if len(s.References) > 0 {
		m.printf("Reference: %s\n\n", strings.Join(listing.Map(s.References, code), " or "))
	}
	if len(s.Answers) > 0 {
		m.printf("| score (%%) | answer ")
		for _, b := range s.Budgets {
			m.printf("| %s ", m.escape(b))
		}
		m.printf("|\n|---:|:---%s|\n", strings.Repeat("|:---", len(s.Budgets)))
	}
	for _, a := range s.Answers {
		score := a.Score
		score = cmp.Or(score, absent)
		m.printf("| %s | %s", m.escape(score), strings.Join(listing.Map(a.Turns, code), " / "))
		if a.Full {
			m.printf(" (full cache)")
		}
		for _, by := range a.By {
			labels := listing.Map(by, func(k Key) string { return m.escape(k.Label) })
			m.printf(" | %s", strings.Join(labels, ", "))
		}
		m.printf(" |\n")
	}
	if len(s.Answers) > 0 {
		m.printf("\n")
	}
	if len(s.Rest) > 0 {
		m.printf("More answers, of %s, are in predictions.jsonl.\n\n", m.escape(strings.Join(s.Rest, ", ")))
	}
	for _, e := range s.Errors {
		m.printf("- %s\n", m.escape(e))
	}
	if len(s.Errors) > 0 {
		m.printf("\n")
	}
}

// escape makes text stand for itself: no markup, no HTML, no table's end.
func (m *markdown) escape(text string) string {
	return m.escapes.Replace(printable.Text(text))
}

var markdownEscapes = strings.NewReplacer(
	`\`, `\\`, "|", `\|`, "\n", " ", "\r", " ", "\t", " ", "<", "&lt;", ">", "&gt;", "&", "&amp;", "_", `\_`, "*", `\*`, "`", "\\`",
	"[", `\[`, "]", `\]`, "~", `\~`, "#", `\#`, "!", `\!`, "$", `\$`, "@", `\@`)

// code is text as a code span of a table: nothing in it but a bar is markup.
func code(text string) string {
	text = strings.NewReplacer("\n", "↵", "\r", "␍", "\t", "⇥", "|", `\|`).Replace(printable.Text(text))
	if strings.TrimSpace(text) == "" {
		return fmt.Sprintf("(empty, %d characters)", len([]rune(text)))
	}
	fence := strings.Repeat("`", longestRun(text, '`')+1)
	return fence + " " + text + " " + fence
}

func (m *markdown) codeBlock(text string) {
	text = printable.Text(text)
	fence := strings.Repeat("`", max(3, longestRun(text, '`')+1))
	m.printf("%s\n%s\n%s\n\n", fence, strings.TrimRight(text, "\n"), fence)
}

// longestRun is how often a byte stands in a row.
func longestRun(text string, b byte) int {
	longest, run := 0, 0
	for i := range len(text) {
		if run++; text[i] != b {
			run = 0
		}
		longest = max(longest, run)
	}
	return longest
}
