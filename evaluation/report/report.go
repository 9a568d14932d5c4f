package report

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"glimpse/evaluation"
	"glimpse/evaluation/runs"
	"glimpse/eviction"
	"glimpse/internal/figures"
	"glimpse/internal/listing"
)

// Options say what a report shows of its runs.
type Options struct {
	Title     string   // "": made from the measurements
	Baseline  string   // policy that the others are tested against; "" is the best at each budget
	Highlight []string // policies in colour; none: Highlighted
	Samples   int      // answers shown of every task
	Version   string   // of the program that makes the report

	// Policies and Budgets are those that it is of; none are all.
	Policies []string
	Budgets  []eviction.Budget
}

// Report is what a document says.
type Report struct {
	Title    string
	Version  string
	Notices  []string // what a reader must know before the numbers
	Facts    []Fact
	Summary  []Tab // of several sections, by budget
	Sections []*Section
	Tasks    *Table
	Policies *Table
	Runs     []Run
	Samples  int // answers shown of every task
}

// Fact is a line about the measurement.
type Fact struct{ Name, Value string }

// Run is one of the runs, and how it is repeated.
type Run struct {
	Path, State, Config, Command string
	Facts                        []Fact
}

// Section is one model on one suite of tasks, over which means are taken.
type Section struct {
	ID, Title    string
	Model, Suite string
	Intro        string
	Legend       []Key
	Bounds       bool // there are some
	Others       bool // there are policies without colour
	Overview     *Table
	Quality      *Chart
	Costs        []Tab // by budget
	Scores       []Tab // the same
	Bars         []Tab
	Heat         []Tab // by task and budget
	Tests        []Tab
	Groups       []Tab // by group and budget
	Measures     []*Table
	Answers      []TaskAnswers
	Kept         []*KeptView

	tasks   []string
	budgets []eviction.Budget
	rows    []evaluation.Row  // over all samples
	groups  []evaluation.Row  // the others
	means   []evaluation.Mean // of rows

	heatNumbers []Tab          // Heat in tables
	order       []string       // labels, references first, then by falling mean
	looks       map[string]int // by label
}

// Tab is one of several things that a page shows one at a time.
type Tab struct {
	Name   string // that tabs of other charts and tables have, too: the budget
	Of     string // what it is of, where there are several: a group, a task
	Note   string
	Table  *Table
	More   *Table // a second table
	Charts []*Chart
}

// Title names the tab.
func (t Tab) Title() string {
	if t.Of == "" {
		return t.Name
	}
	return t.Of + ", " + t.Name
}

// Key is an entry of a legend.
type Key struct{ Label, Class string }

// New makes a report of runs that can be joined.
func New(stored []*runs.Stored, o Options) (*Report, error) {
	joined, err := runs.Join(stored)
	if err != nil {
		return nil, err
	}
	if err := o.only(joined); err != nil {
		return nil, err
	}
	rows, err := evaluation.RowsOf(joined.Predictions, joined.Timings)
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 {
		return nil, fmt.Errorf("none of the %d predictions could be measured", len(joined.Predictions))
	}
	r := &Report{Title: o.Title, Version: o.Version, Samples: o.Samples}
	for _, model := range joined.Models {
		for _, suite := range suitesOf(joined.Tasks) {
			s, err := newSection(model, suite.name, suite.tasks, rows)
			if err != nil {
				return nil, err
			}
			if s == nil {
				continue
			}
			if s.Title = suite.name; len(s.tasks) == 1 {
				s.Title = s.tasks[0]
			}
			if len(joined.Models) > 1 {
				s.Title = model + ", " + s.Title
			}
			s.ID = fmt.Sprintf("s%d", len(r.Sections)+1)
			r.Sections = append(r.Sections, s)
		}
	}
	if err := r.checkNames(o); err != nil {
		return nil, err
	}
	r.chooseLooks(o.Highlight)
	for _, s := range r.Sections {
		if err := s.fillContents(joined, o); err != nil {
			return nil, err
		}
	}
	if len(r.Sections) > 1 {
		r.summarize()
	}
	r.describeRuns(stored, joined, rows)
	return r, nil
}

// checkNames refuses policies that were asked for and that no run has.
func (r *Report) checkNames(o Options) error {
	known := r.labels()
	var errs []error
	for _, name := range append(slices.Clone(o.Highlight), o.Baseline) {
		if name != "" && !slices.Contains(known, name) {
			errs = append(errs, fmt.Errorf("no policy %q in the runs", name))
		}
	}
	return errors.Join(errs...)
}

// labels are all sections' labels, in the order in which they appear.
func (r *Report) labels() (out []string) {
	for _, s := range r.Sections {
		out = listing.Union(out, s.order...)
	}
	return out
}

// suite is tasks whose scores are averaged.
type suite struct {
	name  string
	tasks []string
}

// suitesOf groups tasks: a benchmark's, TASK/SUBTASK, and the subtasks that are
// called by their own names. The others are a suite each.
func suitesOf(tasks []string) []suite {
	var out []suite
	for _, t := range tasks {
		name, _, _ := strings.Cut(t, "/")
		if info, ok := taskInfo(t); ok {
			name = info.Name
		}
		i := slices.IndexFunc(out, func(s suite) bool { return s.name == name })
		if i < 0 {
			i = len(out)
			out = append(out, suite{name: name})
		}
		out[i].tasks = append(out[i].tasks, t)
	}
	return out
}

// taskInfo finds the task that results of a name are of.
func taskInfo(name string) (*evaluation.Task, bool) {
	selections, err := evaluation.ParseTasks(name)
	if err != nil || len(selections) != 1 || selections[0].Name() != name {
		return nil, false
	}
	return selections[0].Task, true
}

// newSection takes the rows of one model and suite; nil where there are none.
func newSection(model, suite string, tasks []string, rows []evaluation.Row) (*Section, error) {
	s := &Section{Model: model, Suite: suite}
	for _, r := range rows {
		if r.Model != model || !slices.Contains(tasks, r.Task) {
			continue
		}
		if len(r.Groups) > 0 {
			s.groups = append(s.groups, r)
			continue
		}
		s.rows = append(s.rows, r)
		s.tasks = listing.Union(s.tasks, r.Task)
		if !r.Budget.IsZero() {
			s.budgets = listing.Union(s.budgets, r.Budget)
		}
	}
	if len(s.rows) == 0 {
		return nil, nil
	}
	slices.SortFunc(s.budgets, eviction.Budget.Compare)
	var err error
	if s.means, err = evaluation.MeanByPolicy(s.rows); err != nil {
		return nil, fmt.Errorf("model %s, %s: %w", model, suite, err)
	}
	s.sort()
	return s, nil
}

// coversAll tells that a mean is over all tasks of the section.
func (s *Section) coversAll(m evaluation.Mean) bool { return m.Cells == len(s.tasks) }

// sort orders labels: references, then by the mean over budgets; those that lack tasks last.
func (s *Section) sort() {
	lines := listing.Group(s.means, evaluation.Mean.Label)
	lacks := func(m evaluation.Mean) bool { return !s.coversAll(m) }
	rank := func(line []evaluation.Mean) int {
		switch {
		case line[0].Label() == "full":
			return 0
		case IsReference(line[0].Policy):
			return 1
		case !slices.ContainsFunc(line, lacks):
			return 2
		}
		return 3
	}
	score := func(line []evaluation.Mean) float64 { return average(slices.DeleteFunc(slices.Clone(line), lacks)) }
	slices.SortStableFunc(lines, func(a, b []evaluation.Mean) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(score(b), score(a)), cmp.Compare(a[0].Label(), b[0].Label()))
	})
	s.order = listing.Map(lines, nameOf)
}

// fillContents makes everything that is shown.
func (s *Section) fillContents(joined *runs.Joined, o Options) error {
	scores := scoresOf(s, joined.Predictions)
	comparisons := s.compareBudgets(scores, o.Baseline)
	s.Intro = s.intro()
	s.Overview = s.overview(comparisons)
	s.Quality = s.qualityChart()
	s.Scores = s.scoreTabs()
	s.Costs = s.costTabs()
	s.Bars = s.barTabs()
	s.Heat = s.heatTabs()
	s.Tests = s.testTabs(scores, comparisons)
	s.Groups = s.groupTabs()
	var err error
	if s.Measures, err = s.measureTables(); err != nil {
		return err
	}
	s.Answers = s.answers(joined.Predictions, o.Samples)
	s.Kept = s.keptViews(joined.Kept)
	return nil
}

// chooseLooks gives labels their looks, the same in all sections: 0, 1, … to those in colour,
// in alphabetical order, so that the same policies look the same in all reports of them.
func (r *Report) chooseLooks(highlight []string) {
	var whole []evaluation.Mean
	for _, s := range r.Sections {
		for _, m := range s.means {
			if s.coversAll(m) {
				whole = append(whole, m)
			}
		}
	}
	chosen := slices.Clone(highlight)
	if len(chosen) == 0 {
		chosen = Highlighted(whole, MaxHighlighted)
	}
	slices.Sort(chosen)
	looks := make(map[string]int)
	for _, s := range r.Sections {
		s.looks = looks
		for _, label := range s.order {
			look := lookOf(label, chosen)
			if look >= 0 {
				look %= colours
			}
			looks[label] = look
			switch look {
			case figures.Reference:
				s.Bounds = true
			case figures.Other:
				s.Others = true
			default:
				s.Legend = append(s.Legend, Key{label, s.lookClass(label)})
			}
		}
	}
}

// lookClass is that of a label's look on the page; "" for one without.
func (s *Section) lookClass(label string) string {
	switch look, ok := s.looks[label]; {
	case !ok:
		return ""
	case look == figures.Reference:
		return "ref"
	case look == figures.Other:
		return "other"
	default:
		return fmt.Sprintf("c%d", look)
	}
}

// colours is how many classes of colours the page has.
const colours = MaxHighlighted

func (s *Section) chosen(label string) bool {
	look, ok := s.looks[label]
	return ok && look >= 0
}

// mean is the one of a label at a budget; the full cache's is that of every budget.
func (s *Section) mean(label string, b eviction.Budget) (evaluation.Mean, bool) {
	for _, m := range s.means {
		if m.Label() == label && (m.Budget == b || m.Budget.IsZero()) {
			return m, true
		}
	}
	return evaluation.Mean{}, false
}

// wholeMean is mean where it is over all tasks.
func (s *Section) wholeMean(label string, b eviction.Budget) (evaluation.Mean, bool) {
	m, ok := s.mean(label, b)
	return m, ok && s.coversAll(m)
}

// row is the one of a label at a budget in a task.
func (s *Section) row(label, task string, b eviction.Budget) *evaluation.Row {
	for i := range s.rows {
		r := &s.rows[i]
		if r.Task == task && r.Label() == label && (r.Budget == b || r.Budget.IsZero()) {
			return r
		}
	}
	return nil
}

// rowsAt are the rows at a budget, with the full cache's.
func (s *Section) rowsAt(b eviction.Budget) []evaluation.Row {
	return slices.DeleteFunc(slices.Clone(s.rows), func(r evaluation.Row) bool { return r.Budget != b && !r.Budget.IsZero() })
}

// budgetsOr are the budgets, or none in the place of them, where only the full cache was run.
func (s *Section) budgetsOr() []eviction.Budget {
	if len(s.budgets) == 0 {
		return []eviction.Budget{{}}
	}
	return s.budgets
}

func budgetName(b eviction.Budget) string {
	if b.IsZero() {
		return "full cache"
	}
	return "B = " + b.String()
}
