package evaluation

import "strconv"

// NeedleCells are the cells of a heat map: the rows that are grouped by length and depth.
func NeedleCells(rows []Row) []NeedleCell {
	var out []NeedleCell
	for _, r := range rows {
		if len(r.Groups) != 2 {
			continue
		}
		c := NeedleCell{Policy: r.Label(), Accuracy: r.Score, Samples: r.Samples, Tokens: -1, Depth: -1}
		for _, g := range r.Groups {
			switch v, err := strconv.ParseFloat(g.Value, 64); {
			case err != nil:
			case g.Key == "length":
				c.Tokens = int(v)
			case g.Key == "depth":
				c.Depth = v
			}
		}
		if c.Tokens >= 0 && c.Depth >= 0 {
			out = append(out, c)
		}
	}
	return out
}
