#pragma once

namespace capstan {

// Whether stderr is a terminal on which a line can be redrawn; TERM=dumb is one on which it cannot.
bool can_redraw();

// Whether what goes to a terminal may have colours: not if NO_COLOR has a value (no-color.org) or
// TERM=dumb.
bool may_colour();

}  // namespace capstan
