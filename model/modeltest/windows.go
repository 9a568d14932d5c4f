package modeltest

import "glimpse/model"

// SetWindows gives the layers of a model sliding windows, 0 none.
func SetWindows(m *model.Model, windows ...int) {
	mixers := make([]model.Mixer, m.Config.Layers)
	copy(mixers, m.Config.Mixers)
	for l := range mixers {
		if mixers[l].Window = 0; l < len(windows) {
			mixers[l].Window = windows[l]
		}
	}
	m.Config.Mixers = mixers
}

// Windows are the sliding windows of a model's layers; nil where none has one.
func Windows(m *model.Model) (windows []int) {
	for l := range m.Config.Layers {
		if m.Config.HasWindows() {
			windows = append(windows, m.Config.Window(l))
		}
	}
	return windows
}
