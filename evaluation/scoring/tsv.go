package scoring

import (
	"errors"
	"regexp"
	"slices"
	"strings"
)

func init() {
	const source = "LongProc, Ye et al. 2025, arXiv:2501.05414, html_to_tsv_evaluator.py, "
	kinds := []struct {
		name, about string
		score       func(precision, recall float64) float64
	}{
		{"tsv_f1", "F1 of the rows of a table", func(p, r float64) float64 {
			if p+r == 0 {
				return 0
			}
			return 2 * r * p / (r + p)
		}},
		{"tsv_precision", "share of the answer's rows that the reference table has", func(p, _ float64) float64 { return p }},
		{"tsv_recall", "share of the reference's rows that the answered table has", func(_, r float64) float64 { return r }},
	}
	for _, k := range kinds {
		Metrics.Add(k.name, Metric{
			About:  k.about + ", in any order; best reference",
			Source: source + strings.TrimPrefix(k.name, "tsv_"),
			Score: best(func(prediction, answer string) float64 {
				return k.score(tsvRows(prediction, answer))
			}),
		})
	}
}

var tsvBlock = regexp.MustCompile("(?s)```tsv(.*)```")

// tsvRows returns how many of the rows of the answered table are in the reference
// table, and the other way round. The table is what stands between ```tsv and ```,
// or all that was answered. Both are 0 if one is not a table of at least one row,
// or if their columns differ in number.
func tsvRows(prediction, answer string) (precision, recall float64) {
	if match := tsvBlock.FindStringSubmatch(prediction); match != nil {
		prediction = match[1]
	} else if parts := strings.Split(prediction, "```tsv"); len(parts) > 1 {
		prediction = parts[1]
	}
	got, ok := readTable(prediction)
	want, ok2 := readTable(answer)
	if !ok || !ok2 || len(got) == 0 || len(want) == 0 || len(got[0]) != len(want[0]) {
		return 0, 0
	}
	return shareOfRows(got, want), shareOfRows(want, got)
}

// shareOfRows returns the share of rows that are among others.
func shareOfRows(rows, others [][]string) float64 {
	n := 0
	for _, row := range rows {
		if slices.ContainsFunc(others, func(other []string) bool { return slices.Equal(row, other) }) {
			n++
		}
	}
	return float64(n) / float64(len(rows))
}

// readTable returns the rows below the header, each cell normalised as for
// exact_match and without blanks. A last line of another width is a remark and is
// dropped; any other one becomes a row of N/A. Not ok where the official evaluator
// stops with an error: nothing below the header, two columns of one name, or a line
// that Python's csv module refuses.
func readTable(text string) (rows [][]string, ok bool) {
	data, err := readTSV(strings.Split(strip(text), "\n"))
	if err != nil || len(data) < 2 {
		return nil, false
	}
	header, data := data[0], data[1:]
	for i, name := range header {
		if slices.Contains(header[:i], name) {
			return nil, false
		}
	}
	if len(data[len(data)-1]) != len(header) {
		data = data[:len(data)-1]
	}
	for _, line := range data {
		row := make([]string, len(header))
		for i := range row {
			cell := "N/A"
			if len(line) == len(header) {
				cell = line[i]
			}
			row[i] = strings.ReplaceAll(Normalized(cell), " ", "")
		}
		rows = append(rows, row)
	}
	return rows, true
}

// States of [readTSV].
const (
	atRecord    = iota // nothing of the record read
	atField            // nothing of the field read
	inField            // in a field without quotes
	inQuotes           // in a quoted field
	afterQuote         // behind a quote in a quoted field
	afterReturn        // behind a carriage return
)

// tsvFieldLimit is the length at which Python's csv module refuses a field.
const tsvFieldLimit = 131072

// readTSV splits lines at tabs as Python's csv.reader does with its default
// dialect: a field that begins with a quote ends at the next single one, and may
// run over lines, which are then joined without a line end; "" is a quote; text
// behind a closing quote belongs to the field. An empty line is a record without
// fields.
func readTSV(lines []string) ([][]string, error) {
	var records [][]string
	var record []string
	var field strings.Builder
	length := 0 // characters of the field
	state := atRecord
	end := func() {
		record = append(record, field.String())
		field.Reset()
		length = 0
	}
	add := func(r rune) {
		field.WriteRune(r)
		length++
	}
	// plain reads a character where no quote is open.
	plain := func(r rune) {
		switch r {
		case '\r':
			end()
			state = afterReturn
		case '\t':
			end()
			state = atField
		default:
			add(r)
			state = inField
		}
	}
	for _, line := range lines {
		for _, r := range line {
			switch state {
			case atRecord, atField:
				switch {
				case r == '"':
					state = inQuotes
				case r == '\r' && state == atRecord:
					state = afterReturn
				default:
					plain(r)
				}
			case inField:
				plain(r)
			case inQuotes:
				if r == '"' {
					state = afterQuote
				} else {
					add(r)
				}
			case afterQuote:
				if r == '"' {
					add(r)
					state = inQuotes
				} else {
					plain(r)
				}
			case afterReturn:
				if r != '\r' {
					return nil, errors.New("text behind a carriage return")
				}
			}
			if length > tsvFieldLimit {
				return nil, errors.New("field too long")
			}
		}
		switch state {
		case inQuotes:
			continue
		case atField, inField, afterQuote:
			end()
		}
		records, record, state = append(records, record), nil, atRecord
	}
	if state == inQuotes {
		end()
		records = append(records, record)
	}
	return records, nil
}
