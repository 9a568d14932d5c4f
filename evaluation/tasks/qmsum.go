package tasks

import (
	"context"
	"fmt"
	"iter"
	"strconv"
	"strings"

	"glimpse/datasets"
	"glimpse/evaluation"
)

// The parts of QMSum.
const (
	qmsumMeetings = "meetings" // all queries about a whole meeting
	qmsumSpans    = "spans"    // each query about the turns that are marked as relevant to it
)

const qmsumQuery = "{input}\nAnswer in one or two sentences."

func init() {
	evaluation.Tasks.Add("qmsum", evaluation.Task{
		Name:     "qmsum",
		Doc:      "summaries that queries ask for of meetings, whole or of the turns that are relevant to a query",
		Source:   "QMSum, Zhong et al. 2021, arXiv:2104.05938; github.com/Yale-LILY/QMSum. The prompts are our own",
		Data:     "QMSum's file, data/ALL/jsonl/test.jsonl, or a folder with qmsum.jsonl or test.jsonl",
		Subtasks: []string{qmsumMeetings, qmsumSpans}, NeedsData: true, Contexts: true,
		Open: openQMSum,
	})
}

func openQMSum(ctx context.Context, s *evaluation.Setting, subtask string) (*evaluation.Samples, error) {
	if _, err := s.Model.NeedTokenizer(); err != nil {
		return nil, err
	}
	path, err := findFile(ctx, s, "qmsum", "test")
	if err != nil {
		return nil, err
	}
	const metric = "rougeL"
	b := &interview{
		template: "Read the transcript of a meeting.\n\n{context}\n\n" + qmsumQuery, follow: qmsumQuery,
		rate: rateBy(metric), metric: metric, setting: s, most: maxNew(s, 96),
	}
	t := &fileTask{Setting: s, path: path, metric: metric}
	if subtask == qmsumMeetings {
		return t.samples(b.readMeeting)
	}
	each := b.spans(path)
	count := 0
	for range each {
		count++
	}
	return &evaluation.Samples{Metric: metric, Count: count, Each: s.Take(each)}, nil
}

// meeting is a row of QMSum.
type meeting struct {
	turns    []struct{ Speaker, Content string }
	general  []qmsumQuestion
	specific []qmsumQuestion
}

type qmsumQuestion struct {
	Query, Answer string
	Spans         [][]string `json:"relevant_text_span"`
}

func readMeeting(row datasets.Row) (m meeting, err error) {
	r := reading{Row: row}
	r.decode("meeting_transcripts", "a list of turns with speaker and content", &m.turns)
	const queries = "a list of queries with answers"
	r.decode("general_query_list", queries, &m.general)
	r.decode("specific_query_list", queries, &m.specific)
	return m, r.err
}

// text is what is said from one turn up to another, and with it.
func (m *meeting) text(from, to int) string {
	var b strings.Builder
	for _, t := range m.turns[from : to+1] {
		fmt.Fprintf(&b, "%s: %s\n", t.Speaker, t.Content)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// readMeeting makes a sample of a meeting with all its queries.
func (b *interview) readMeeting(ctx context.Context, row datasets.Row) (*evaluation.Sample, error) {
	m, err := readMeeting(row)
	if err != nil {
		return nil, err
	}
	var questions []contextQuestion
	for _, q := range append(m.general, m.specific...) {
		questions = append(questions, contextQuestion{q.Query, []string{q.Answer}})
	}
	if len(questions) == 0 || len(m.turns) == 0 {
		return nil, fmt.Errorf("got %d queries about %d turns, want at least one of each", len(questions), len(m.turns))
	}
	return b.sample(ctx, m.text(0, len(m.turns)-1), questions)
}

// spans are the samples of the specific queries of all meetings, each about the turns that are relevant to it. A row that cannot be read is
// one sample, which fails.
func (b *interview) spans(path string) iter.Seq[evaluation.Item] {
	return func(yield func(evaluation.Item) bool) {
		for row, err := range fileRows(path) {
			var m meeting
			if err == nil {
				m, err = readMeeting(row)
			}
			if err != nil {
				if !yield(evaluation.Item{ID: rowID(path, row), Make: func(context.Context) (*evaluation.Sample, error) { return nil, row.Fail(err) }}) {
					return
				}
				continue
			}
			for i, q := range m.specific {
				make := func(ctx context.Context) (*evaluation.Sample, error) {
					text, err := m.relevant(q)
					if err != nil {
						return nil, row.Fail(err)
					}
					return b.sample(ctx, text, []contextQuestion{{q.Query, []string{q.Answer}}})
				}
				if !yield(evaluation.Item{ID: fmt.Sprintf("%s-%d", rowID(path, row), i+1), Make: make}) {
					return
				}
			}
		}
	}
}

// relevant is what is said in the turns that are marked as relevant to a query.
func (m *meeting) relevant(q qmsumQuestion) (string, error) {
	var parts []string
	for _, span := range q.Spans {
		if len(span) != 2 {
			return "", fmt.Errorf("query %.40q: got a span of %d numbers, want two", q.Query, len(span))
		}
		from, errFrom := strconv.Atoi(span[0])
		to, errTo := strconv.Atoi(span[1])
		if errFrom != nil || errTo != nil || from < 0 || to < from || to >= len(m.turns) {
			return "", fmt.Errorf("query %.40q: got turns %q to %q, want some of 0 to %d", q.Query, span[0], span[1], len(m.turns)-1)
		}
		parts = append(parts, m.text(from, to))
	}
	if len(parts) == 0 {
		return "", fmt.Errorf("query %.40q: got no span of turns", q.Query)
	}
	return strings.Join(parts, "\n"), nil
}
