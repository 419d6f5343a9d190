// Files of this folder that the program contains (trivet_embed in cmake/TrivetFolder.cmake).
#pragma once

#include <string_view>

namespace trivet::report {

extern const std::string_view kPageCss;      // page.css: the style of every page
extern const std::string_view kRunPageHtml;  // run_page.html: the skeleton of the page of a run
extern const std::string_view kLivePageJs;   // live_page.js: keeps the page of a run that is still going up to date

}  // namespace trivet::report
